// The flame graph of the peak: what was allocated, by category and then by stack. It grows
// downwards; the width is bytes.

const flameRow = 20; // height of a row in CSS pixels
const leastFlame = 0.0008; // share of the width below which a call is not drawn

class Flame {
  constructor(app, at, line) {
    Object.assign(this, { app, at, line });
    this.root = this.build(app.device);
    this.zoomed = this.root;
    this.draw();
  }

  build(d) {
    const node = (name, parent, category) => ({ name, parent, category, bytes: 0, children: new Map() });
    const root = node("allocated", null, "");
    const step = (from, name, category, size) => {
      let to = from.children.get(name);
      if (!to) from.children.set(name, (to = node(name, from, category)));
      to.bytes += size;
      return to;
    };
    for (let i = 0; i < d.flames.bytes.length; i++) {
      const size = d.flames.bytes[i], stack = d.stacks[d.flames.stack[i]], category = d.names.categories[d.flames.category[i]];
      root.bytes += size;
      let at = step(root, category, category, size);
      const names = stack.frames.length ? stack.frames.map((f) => d.frames[f]) : [d.lines[stack.line].label];
      for (const name of names) at = step(at, name, category, size);
    }
    return root;
  }

  draw() {
    const boxes = [], path = [];
    for (let n = this.zoomed.parent; n; n = n.parent) path.unshift(n);
    path.forEach((n, depth) => boxes.push(this.box(n, 0, 1, depth)));
    let deepest = path.length;
    const place = (n, left, width, depth) => {
      deepest = Math.max(deepest, depth);
      boxes.push(this.box(n, left, width, depth));
      for (const child of Array.from(n.children.values()).sort((a, b) => b.bytes - a.bytes)) {
        const part = (width * child.bytes) / n.bytes;
        if (part >= leastFlame) place(child, left, part, depth + 1);
        left += part;
      }
    };
    place(this.zoomed, 0, 1, path.length);
    this.at.style.height = `${(deepest + 1) * flameRow}px`;
    this.at.replaceChildren(...boxes);
    this.say(this.zoomed);
  }

  box(n, left, width, depth) {
    const text = `${n.name}: ${bytes(n.bytes)}, ${percent(this.root.bytes ? n.bytes / this.root.bytes : 0)}`;
    const e = el("button", {
      type: "button", class: "call", role: "treeitem", title: text, "aria-level": depth + 1, tabindex: n === this.zoomed ? "0" : "-1",
      onclick: () => this.zoom(n), onmouseenter: () => this.say(n), onmouseleave: () => this.say(this.zoomed), onfocus: () => this.say(n),
      onkeydown: (event) => this.key(event, n),
    }, width > 0.02 ? text : "");
    e.style.cssText = `left:${left * 100}%;width:${width * 100}%;top:${depth * flameRow}px;--colour:${palette[n.category] || otherColour}`;
    n.element = e;
    return e;
  }

  zoom(n) {
    this.zoomed = n === this.zoomed && n.parent ? n.parent : n;
    this.draw();
    this.zoomed.element.focus();
  }

  say(n) {
    this.line.textContent = `${n.name}: ${bytes(n.bytes)} of ${bytes(this.root.bytes)}, ${percent(this.root.bytes ? n.bytes / this.root.bytes : 0)}`;
  }

  // key moves along the tree with the arrow keys.
  key(event, n) {
    const shown = (x) => x && x.element && x.element.isConnected;
    const siblings = n.parent ? Array.from(n.parent.children.values()).sort((a, b) => b.bytes - a.bytes).filter(shown) : [n];
    const at = siblings.indexOf(n), children = Array.from(n.children.values()).sort((a, b) => b.bytes - a.bytes).filter(shown);
    const to = { ArrowDown: children[0], ArrowUp: n.parent, ArrowRight: siblings[at + 1], ArrowLeft: siblings[at - 1] }[event.key];
    if (!shown(to)) return;
    event.preventDefault();
    to.element.focus();
  }
}
