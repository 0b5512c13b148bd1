// What is known of a buffer: beside the pointer, and in full when it is chosen.

function describe(app, i) {
  const d = app.device, k = d.kind[i], stack = d.stacks[d.stack[i]], line = d.lines[stack.line];
  const size = d.units[i] * unitBytes, part = d.names.parts[kind.part(k)], iteration = d.iteration[i] - 1;
  const when = iteration < 0 ? "before recording began" : iteration === 0 ? "start-up" : `iteration ${iteration}${part ? `, ${part}` : ""}`;
  const freed = kind.resident(k) ? "never, in the recording" : `event ${count(d.freed[i])}, after ${plural(d.freed[i] - d.start[i], "event")}`;
  const rows = [
    ["Category", `${d.names.categories[kind.category(k)]}${kind.sure(k) ? "" : " (inferred)"}`],
    ["Size", `${bytes(size)} (${count(size)} B${d.spare[i] ? `; ${count(size - d.spare[i])} B asked for` : ""})`],
    ["Allocated", kind.initial(k) ? "before recording began" : `event ${count(d.start[i])}: ${when}`],
    ["Freed", freed],
    ["Line", line.label],
  ];
  if (line.from) rows.push(["From", line.from]);
  if (d.reusable[i] > d.freed[i] + 1 && !kind.resident(k)) rows.splice(4, 0, ["Reusable", `${plural(d.reusable[i] - d.freed[i], "event")} later: another stream used it`]);
  rows.push(["Stream", d.names.streams[kind.stream(k)]]);
  rows.push(["In the plan", d.place[i] === nowhere ? "no place: the pool serves it" : `at ${bytes(d.place[i] * unitBytes)}`]);
  if (kind.binds(k)) rows.push(["Bound", "one of the buffers that prove the lower bound"]);
  return { rows, frames: stack.frames.map((f) => d.frames[f]) };
}

function rowsTable(rows) {
  return el("table", { class: "rows" }, el("tbody", {}, ...rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value)))));
}

// tipFor is what the pointer shows.
function tipFor(app, hover) {
  if (hover.buffer >= 0) {
    const { rows, frames } = describe(app, hover.buffer);
    const nearest = frames.slice(-4).reverse();
    return [el("p", { class: "at" }, `event ${count(hover.event)}`), rowsTable(rows.slice(0, 6)), el("ol", { class: "frames" }, ...nearest.map((f) => el("li", {}, f)))];
  }
  const gap = hover.picture.gap(app.device, hover.event, hover.address);
  const where = `event ${count(hover.event)}, at ${bytes(Math.floor(hover.address) * unitBytes)}`;
  if (gap === null) return [el("p", {}, `${where}: not reserved`)];
  const what = hover.picture.which === "plan" ? "free for what the plan does not foresee" : "reserved and free";
  return [el("p", {}, `${where}: a piece of ${bytes(gap * unitBytes)}, ${what}`)];
}

function placeTip(tip, content, e) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const r = tip.getBoundingClientRect(), gap = 14;
  const x = e.clientX + gap + r.width > innerWidth ? e.clientX - gap - r.width : e.clientX + gap;
  const y = e.clientY + gap + r.height > innerHeight ? Math.max(4, innerHeight - r.height - 4) : e.clientY + gap;
  tip.style.transform = `translate(${Math.max(4, x)}px, ${y}px)`;
}

function showDetails(app, i) {
  const at = byId("details");
  if (i < 0) {
    at.replaceChildren(el("p", { class: "soft" }, "Click a buffer to keep its details here. Search for a line of code, a function or a category, or for a size such as >100MiB."));
    return;
  }
  const { rows, frames } = describe(app, i);
  at.replaceChildren(
    el("h3", {}, "Buffer"), rowsTable(rows),
    el("h3", {}, "Stack, the latest call last"),
    frames.length ? el("ol", { class: "frames" }, ...frames.map((f) => el("li", {}, f))) : el("p", { class: "soft" }, "none was recorded"),
    el("div", { class: "bar" },
      el("button", { type: "button", onclick: () => app.goTo(i, true) }, "Zoom to it"),
      el("button", { type: "button", onclick: () => app.select(-1) }, "Close")));
}

// Search finds buffers by words in their line, stack and category, and by size. All of the
// words have to be found.
function search(device, text) {
  const words = text.toLowerCase().split(/\s+/).filter((w) => w !== "");
  if (words.length === 0) return null;
  let least = 0, most = Infinity;
  const plain = [];
  for (const w of words) {
    const size = /^([<>])(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?$/.exec(w);
    if (!size) {
      plain.push(w);
      continue;
    }
    const value = parseFloat(size[2]) * Math.pow(1024, " kmgt".indexOf(size[3] || " "));
    if (size[1] === ">") least = Math.max(least, value);
    else most = Math.min(most, value);
  }
  const lines = device.lines.map((l) => `${l.label}\n${l.from || ""}`.toLowerCase());
  const frames = device.frames.map((f) => f.toLowerCase());
  const categories = device.names.categories.map((c) => c.toLowerCase());
  const inStack = plain.map((w) => {
    const inFrame = frames.map((f) => f.includes(w));
    return Uint8Array.from(device.stacks, (s) => (lines[s.line].includes(w) || s.frames.some((f) => inFrame[f]) ? 1 : 0));
  });
  const inCategory = plain.map((w) => categories.map((c) => c.includes(w)));
  const matches = new Uint8Array(device.n), found = [];
  let sum = 0;
  for (let i = 0; i < device.n; i++) {
    const size = device.units[i] * unitBytes;
    if (size <= least && least > 0 || size >= most) continue;
    if (!plain.every((_, w) => inStack[w][device.stack[i]] || inCategory[w][kind.category(device.kind[i])])) continue;
    matches[i] = 1;
    found.push(i);
    sum += size;
  }
  found.sort((a, b) => device.units[b] - device.units[a] || a - b);
  return { matches, found, sum, at: -1 };
}
