// The part of the recording that is shown: a range of events, the same for all plots, and
// a range of addresses, the same for both pictures, so that their heights compare.

class View {
  constructor(events, height) {
    this.events = Math.max(1, events);
    this.height = Math.max(1, height);
    this.all();
  }

  all() {
    this.t0 = 0;
    this.t1 = this.events;
    this.a0 = 0;
    this.a1 = this.height;
  }

  // clamp moves and shrinks the range into what there is.
  clamp() {
    const least = Math.min(this.events, 8), leastUnits = Math.min(this.height, 64);
    [this.t0, this.t1] = within(this.t0, this.t1, this.events, least);
    [this.a0, this.a1] = within(this.a0, this.a1, this.height, leastUnits);
  }

  pan(dt, da) {
    this.t0 += dt;
    this.t1 += dt;
    this.a0 += da;
    this.a1 += da;
    this.clamp();
  }

  // zoom scales time by factor and keeps the event t where it is; zoomAddress likewise.
  zoom(factor, t) {
    this.t0 = t - (t - this.t0) * factor;
    this.t1 = t + (this.t1 - t) * factor;
    this.clamp();
  }

  zoomAddress(factor, a) {
    this.a0 = a - (a - this.a0) * factor;
    this.a1 = a + (this.a1 - a) * factor;
    this.clamp();
  }

  // show brings an event into view, and zooms in if everything is shown.
  show(t, span) {
    const width = Math.min(this.t1 - this.t0, span);
    this.t0 = t - width / 2;
    this.t1 = t + width / 2;
    this.clamp();
  }

  // instants is the event that each of the columns shows: that of its most allocated
  // bytes. So a peak of a few events is seen at any zoom.
  instants(columns, highest) {
    const out = new Uint32Array(columns), step = (this.t1 - this.t0) / columns;
    for (let c = 0; c < columns; c++) {
      const from = this.t0 + c * step, low = Math.ceil(from), high = Math.ceil(from + step) - 1;
      out[c] = high <= low ? Math.floor(high < low ? from : low) : highest.within(low, high);
      if (out[c] >= this.events) out[c] = this.events - 1;
    }
    return out;
  }
}

function within(low, high, most, least) {
  const size = Math.min(most, Math.max(least, high - low));
  const middle = (low + high) / 2;
  low = high - low === size ? low : middle - size / 2;
  low = Math.min(Math.max(0, low), most - size);
  return [low, low + size];
}
