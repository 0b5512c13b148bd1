// The figures of diff and peak, as the commands have them. What a cell shows names its
// place in that JSON, so that a test can compare them.

function at(value, path) {
  return path.split(".").reduce((v, key) => (v == null ? v : v[key]), value);
}

// figure is the element for a number of the figures.
function figure(app, path, format, tag = "td") {
  const value = at(app.figures, path);
  const attributes = { "data-path": path, "data-format": format.name, class: "number" };
  if (value != null && format === bytes) attributes.title = `${count(value)} B`;
  return el(tag, attributes, value == null ? "" : format(value));
}

function table(heads, rows) {
  return el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(([name, number]) => el("th", { scope: "col", class: number ? "number" : "" }, name)))), el("tbody", {}, ...rows));
}

function tiles(app) {
  const tile = (name, path, format, note) => el("div", { class: "tile" }, el("p", { class: "name" }, name), figure(app, path, format, "p"), el("p", { class: "note" }, note));
  const { diff } = app.figures, d = app.device;
  const out = [
    tile("Plan reserves", "diff.plan.peak_reserved_bytes", bytes, `mode ${diff.plan.mode}, ${percent(diff.plan.efficiency)} efficient`),
    tile("Peak allocated", "diff.plan.peak_allocated_bytes", bytes, "what the program holds"),
    tile("Lower bound", "diff.plan.lower_bound_bytes", bytes, diff.plan.gap === 0 ? "reached: no plan is smaller" : `gap ${gapText(diff.plan.gap)}`),
    tile("Recorded", "diff.recorded.peak_reserved_bytes", bytes, diff.recorded.settings),
  ];
  if (diff.plan.reduction_against_native != null) out.push(tile("Native's waste avoided", "diff.plan.reduction_against_native", percent, "of what it reserves in vain"));
  if (diff.plan.served_instead) out.splice(1, 0, tile("Served instead", "diff.plan.served_instead.peak_reserved_bytes", bytes, "by the pool: the plan does not pay"));
  byId("tiles").replaceChildren(...out);
  const binds = d.bound.kind === "witness" ? `because of ${plural(d.bound.witness, "buffer")} that cannot be placed lower` : "because of what is live then";
  alarm(app);
  app.boundText = `The lower bound binds at event ${count(d.bound.event)} (${d.bound.phase}), ${binds}.`;
}

// alarm tells of an out-of-memory: the last one, why there was no memory for it, and what
// would have fitted.
function alarm(app) {
  const { diff, peak } = app.figures, failed = diff.out_of_memory, at = byId("alarm");
  at.hidden = !failed;
  if (!failed) return;
  at.replaceChildren(`Out of memory at event ${count(failed.event)}: a request of `, figure(app, "diff.out_of_memory.requested_bytes", bytes, "span"), ` failed${failed.ends_recording ? ", and the recording ends there" : ""}.`);
  const request = peak.out_of_memory;
  if (request) {
    const causes = { short: "there was not enough free memory", fragmented: "enough memory was free, in pieces", limit: "a limit on the process stopped it", "fragmented by a limit": "a limit stopped it, and free memory was in pieces" };
    at.append(el("p", {}, `Why: ${causes[request.cause] || request.cause}. `, request.missing_bytes > 0 ? "Missing: " : "", request.missing_bytes > 0 ? figure(app, "peak.out_of_memory.missing_bytes", bytes, "span") : ""));
  }
  const fit = diff.would_fit;
  if (!fit) return;
  const says = { true: "fits", false: "does not fit", null: "may fit" };
  const one = (name, key) => [`${name} `, figure(app, `diff.would_fit.${key}.peak_reserved_bytes`, bytes, "span"), `: ${says[String(fit[key].fits)]}`];
  at.append(el("p", {}, "With that request, reserved: ", ...one("native", "native"), "; ", ...one("expandable segments", "expandable_segments"), "; ", ...one("plan", "plan"), "."));
}

// gapText prints what is not 0 as more than 0, as the commands do.
function gapText(share) {
  return share < 0.00005 ? `${(100 * share).toPrecision(2)} %` : `${(100 * share).toFixed(3)} %`;
}

// compare is diff's table.
function compare(app) {
  const { diff } = app.figures, rows = [];
  const row = (name, path, r) => {
    const failed = r.out_of_memory ? `, out of memory at event ${count(r.out_of_memory.event)}` : "";
    rows.push(el("tr", {}, el("th", { scope: "row" }, name + failed), figure(app, `${path}.peak_reserved_bytes`, bytes), figure(app, `${path}.efficiency`, percent),
      figure(app, `${path}.waste_bytes`, bytes), figure(app, `${path}.plan_reduction`, percent), meter(app, r.peak_reserved_bytes)));
  };
  row(`recorded (${diff.recorded.settings})`, "diff.recorded", diff.recorded);
  for (const [key, r] of Object.entries(diff.simulated)) {
    if (r && !Array.isArray(r) && key !== "configured") row(`${r.settings}, simulated`, `diff.simulated.${key}`, r);
  }
  row(`plan (${diff.plan.mode})`, "diff.plan", diff.plan);
  if (diff.plan.served_instead) row(`served instead: ${diff.plan.served_instead.by}`, "diff.plan.served_instead", diff.plan.served_instead);
  byId("compare").replaceChildren(table([["", 0], ["peak reserved", 1], ["efficiency", 1], ["waste", 1], ["waste the plan avoids", 1], ["reserved; dark is allocated", 0]], rows));
}

// meter is a bar for what was reserved, with what the program needed of it.
function meter(app, reserved) {
  const { diff } = app.figures, rows = [diff.recorded, diff.plan, ...Object.values(diff.simulated)].filter((r) => r && r.peak_reserved_bytes);
  const most = Math.max(...rows.map((r) => r.peak_reserved_bytes)), used = Math.min(reserved, diff.plan.peak_allocated_bytes);
  const bar = el("div", { class: "meter", "aria-hidden": "true" }, el("div", { class: "used" }), el("div", { class: "spare" }));
  bar.firstChild.style.width = `${(100 * used) / most}%`;
  bar.lastChild.style.width = `${(100 * Math.max(0, reserved - used)) / most}%`;
  return el("td", { class: "meters" }, bar);
}

function peakTables(app) {
  const { peak } = app.figures;
  const why = { "out-of-memory": "the request that ran out of memory", peak: "the peak of allocated memory", asked: "the event that was asked for" }[peak.chosen_by];
  byId("peak-line").replaceChildren(`Event ${count(peak.event)}, ${why} (${peak.phase}): `, figure(app, "peak.allocated_bytes", bytes, "strong"),
    ` in ${plural(peak.buffers, "buffer")}, of `, figure(app, "peak.reserved_bytes", bytes, "strong"), " reserved. ", app.boundText);
  byId("categories").replaceChildren(table([["category", 0], ["bytes", 1], ["share", 1], ["sure", 1], ["buffers", 1]], peak.categories.map((c, i) =>
    el("tr", {}, el("th", { scope: "row" }, swatch(palette[c.category] || otherColour), c.category), figure(app, `peak.categories.${i}.bytes`, bytes), figure(app, `peak.categories.${i}.fraction`, percent),
      figure(app, `peak.categories.${i}.sure_fraction`, percent), figure(app, `peak.categories.${i}.buffers`, count)))));
  byId("lines").replaceChildren(table([["line", 0], ["bytes", 1], ["share", 1], ["buffers", 1], ["mostly", 0]], peak.lines.map((l, i) =>
    el("tr", {}, el("th", { scope: "row" }, l.line, l.from ? el("div", { class: "soft" }, l.from.startsWith("the size of ") ? l.from : `from ${l.from}`) : null), figure(app, `peak.lines.${i}.bytes`, bytes),
      figure(app, `peak.lines.${i}.fraction`, percent), figure(app, `peak.lines.${i}.buffers`, count), el("td", {}, l.category)))));
  const m = "peak.memory";
  const fact = (name, path, format) => el("tr", {}, el("th", { scope: "row" }, name), figure(app, `${m}.${path}`, format));
  byId("memory").replaceChildren(table([["at this instant", 0], ["", 1]], [
    fact("segments", "segments", count), fact("free for such a request", "usable_bytes", bytes), fact("in pieces", "pieces", count), fact("the largest piece", "largest_piece_bytes", bytes),
    fact("of other streams", "other_streams_bytes", bytes), fact("of the other size class", "other_class_bytes", bytes), fact("of private pools", "private_pools_bytes", bytes), fact("not split off", "slack_bytes", bytes),
    fact("in segments that are mostly free", "mostly_free_bytes", bytes), fact("such segments", "mostly_free_segments", count)]));
}

function swatch(colour, pattern, ink) {
  const s = el("canvas", { class: "swatch", width: "16", height: "16", "aria-hidden": "true" });
  const c = s.getContext("2d");
  c.fillStyle = colour;
  c.fillRect(0, 0, 16, 16);
  if (pattern) {
    c.fillStyle = ink;
    for (let y = 0; y < 16; y++) for (let x = 0; x < 16; x++) if ((pattern[y & 7] >> (x & 7)) & 1) c.fillRect(x, y, 1, 1);
  }
  return s;
}

function help() {
  const keys = [["Tab", "to a picture, a button or a table"], ["← → ↑ ↓", "move; with Shift farther"], ["+ −", "zoom time in and out; with Shift the address"], ["0", "show all"], ["p", "go to the peak"],
    ["b", "go to where the lower bound binds"], ["/", "search; Enter and Shift+Enter go from match to match"], ["c", "colour by category, line, stream"], ["t", "patterns on and off"], ["d", "dark and light"], ["Esc", "close and leave"]];
  byId("help").replaceChildren(
    el("table", { class: "rows" }, el("tbody", {}, ...keys.map(([k, what]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", {}, k)), el("td", {}, what))))),
    el("p", {}, "Time is the index of the event in the recording: allocations, frees and the allocator's own steps. Each column of pixels shows the event with the most allocated memory among those that it stands for, so that no peak is lost at any zoom. Sizes are bytes, rounded up to 512."),
    el("p", {}, "In the plan's picture a buffer lies at its address in the plan. In the other one, segments are put one above the other, each at the lowest place that is free while it lives; within a segment the addresses are the recorded ones. Both have the same scale."));
}
