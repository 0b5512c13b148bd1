// What colour a buffer has. Colours are of a palette that people with any colour vision
// tell apart (Okabe and Ito); patterns tell the same without colour.

const themes = {
  light: { ground: "#ffffff", text: "#1b1f24", soft: "#5b6470", grid: "#e3e6ea", free: "#d4d8de", hatch: "#bcc2ca", arena: "#eef1f5", edge: 0.72, ink: 0.62, mark: "#b3261e", focus: "#1259a8" },
  dark: { ground: "#14171b", text: "#e7eaee", soft: "#a0a9b4", grid: "#2a2f36", free: "#3a414a", hatch: "#525b66", arena: "#1d2228", edge: 0.66, ink: 0.55, mark: "#ff8a80", focus: "#7ab8ff" },
};

const palette = {
  parameters: "#0072b2", gradients: "#e69f00", "optimizer state": "#cc79a7", activations: "#009e73",
  temporaries: "#56b4e9", unknown: "#8a9099", "request that failed": "#d55e00",
};

const series = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7a5cc7", "#8c564b", "#4f7f3f"];
const otherColour = "#8a9099";

// A pattern is 8 rows of 8 bits: 1 is ink.
const patterns = [
  [0, 0, 0, 0, 0, 0, 0, 0], [1, 2, 4, 8, 16, 32, 64, 128], [255, 0, 0, 0, 255, 0, 0, 0], [136, 0, 34, 0, 136, 0, 34, 0],
  [128, 64, 32, 16, 8, 4, 2, 1], [17, 17, 17, 17, 17, 17, 17, 17], [129, 66, 36, 24, 24, 36, 66, 129], [255, 17, 17, 17, 255, 17, 17, 17],
  [24, 0, 0, 24, 24, 0, 0, 24], [85, 170, 85, 170, 85, 170, 85, 170], [240, 240, 240, 240, 15, 15, 15, 15],
];

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

// pixel is a colour as a number of an image's memory: little endian, so red comes last.
function pixel([r, g, b]) {
  return ((255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0;
}

function mix(a, b, share) {
  return a.map((v, i) => v * share + b[i] * (1 - share));
}

const black = [0, 0, 0];

// Colours groups buffers by what they are coloured by. group(i) is the index of buffer i's
// entry.
class Colours {
  constructor(device, by, theme) {
    this.by = by;
    if (by === "category") {
      this.entries = device.names.categories.map((name) => ({ name, colour: palette[name] || otherColour }));
      this.group = (i) => kind.category(device.kind[i]);
    } else if (by === "stream") {
      this.entries = device.names.streams.map((name, i) => ({ name: `stream ${name}`, colour: series[i % series.length] }));
      this.group = (i) => kind.stream(device.kind[i]);
    } else {
      this.byLine(device);
    }
    const ground = rgb(theme.ground);
    this.fills = Uint32Array.from(this.entries, (e) => pixel(rgb(e.colour)));
    this.edges = Uint32Array.from(this.entries, (e) => pixel(mix(rgb(e.colour), black, theme.edge)));
    this.inks = Uint32Array.from(this.entries, (e) => pixel(mix(rgb(e.colour), black, theme.ink)));
    this.dims = Uint32Array.from(this.entries, (e) => pixel(mix(rgb(e.colour), ground, 0.16)));
    this.groups = new Uint8Array(device.n);
    const used = new Set();
    for (let i = 0; i < device.n; i++) used.add((this.groups[i] = this.group(i)));
    this.entries.forEach((e, k) => (e.used = used.has(k)));
  }

  // byLine gives colours to the lines that hold the most bytes for longest.
  byLine(device) {
    const held = new Float64Array(device.lines.length);
    const lineOf = Int32Array.from(device.stacks, (s) => s.line);
    for (let i = 0; i < device.n; i++) held[lineOf[device.stack[i]]] += device.units[i] * (device.freed[i] - device.start[i]);
    const order = Array.from(held.keys()).sort((a, b) => held[b] - held[a]).slice(0, series.length);
    this.entries = order.map((line, k) => ({ name: device.lines[line].label, colour: series[k] }));
    this.entries.push({ name: "other lines", colour: otherColour });
    const rank = new Uint8Array(device.lines.length).fill(order.length);
    order.forEach((line, k) => (rank[line] = k));
    this.group = (i) => rank[lineOf[device.stack[i]]];
  }
}
