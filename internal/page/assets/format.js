// Numbers as the commands print them, and elements.

// fixed2 rounds to two decimals as Go's %.2f does: to the even one of two that are as near.
function fixed2(v) {
  if ((v * 8) % 1 !== 0) return v.toFixed(2); // only multiples of 1/8 lie in the middle
  const n = v * 100, low = Math.floor(n);
  if (n - low !== 0.5) return v.toFixed(2);
  return ((low % 2 === 0 ? low : low + 1) / 100).toFixed(2);
}

function bytes(n) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let v = n, unit = 0;
  while ((v >= 1024 || v <= -1024) && unit < names.length - 1) {
    v /= 1024;
    unit++;
  }
  return unit === 0 ? `${n} B` : `${fixed2(v)} ${names[unit]}`;
}

function count(n) {
  return String(Math.trunc(n)).replace(/\B(?=(\d{3})+$)/g, ",");
}

function percent(share) {
  return `${fixed2(100 * share)} %`;
}

function plural(n, one, many = one + "s") {
  return `${count(n)} ${n === 1 ? one : many}`;
}

// el makes an element. Text is text, never markup: names in a recording may be anything.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value != null) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c != null));
  return e;
}

function byId(id) {
  return document.getElementById(id);
}

// ticks are round numbers from low to high, at most n.
function ticks(low, high, n) {
  const rough = (high - low) / Math.max(1, n);
  if (!(rough > 0)) return [];
  const ten = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((k) => k * ten).find((s) => s >= rough);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(Math.round(v / step) * step);
  return out;
}

// byteTicks are round numbers of the unit that suits the range, with their labels.
function byteTicks(low, high, n) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 1, name = 0;
  while ((high - low) / unit >= 2048 && name < names.length - 1) {
    unit *= 1024;
    name++;
  }
  const values = ticks(low / unit, high / unit, n);
  const digits = values.length > 1 ? Math.max(0, -Math.floor(Math.log10(values[1] - values[0]) + 1e-9)) : 0;
  return values.map((v) => ({ value: v * unit, label: v === 0 ? "0" : `${digits === 0 ? count(v) : v.toFixed(Math.min(digits, 3))} ${names[name]}` }));
}
