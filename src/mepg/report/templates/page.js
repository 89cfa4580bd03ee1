"use strict";
// Draws the learning curves from the JSON above. Text from runs only ever becomes textContent.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const NS = "http://www.w3.org/2000/svg";
  const MARGIN = { top: 10, right: 12, bottom: 26, left: 46 };

  const svgElement = (parent, name, attributes, text) => {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };

  const ticks = (low, high, count) => {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const size = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const found = [];
    for (let i = Math.ceil(low / size - 1e-9); i * size <= high + 1e-9 * size; i++) found.push(i * size || 0); // never -0
    return found;
  };

  const number = (value) =>
    value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 1 ? 1 : 3 });
  const axisNumber = (value, top) =>
    value === 0 ? "0" : top >= 1e6 ? `${+(value / 1e6).toFixed(2)}M` : top >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : number(value);

  const nearest = (steps, step) => {
    let best = 0;
    for (let i = 1; i < steps.length; i++) if (Math.abs(steps[i] - step) < Math.abs(steps[best] - step)) best = i;
    return best;
  };

  class Plot {
    constructor(place, panel) {
      this.place = place;
      this.panel = panel;
      this.hidden = new Set();
      this.over = "steps"; // or "hours"
      this.at = null; // the place along the axis that is pointed at
      this.svg = document.createElementNS(NS, "svg");
      this.svg.setAttribute("role", "img");
      this.svg.setAttribute("tabindex", "0");
      this.svg.setAttribute("aria-label", `Return on ${panel.env}; arrow keys move along the curves`);
      this.tip = document.createElement("div");
      this.tip.className = "tip";
      this.tip.hidden = true;
      this.tip.setAttribute("role", "status");
      place.append(this.svg, this.tip);
      this.svg.addEventListener("pointermove", (event) => this.point(event));
      this.svg.addEventListener("pointerdown", (event) => this.point(event));
      this.svg.addEventListener("pointerleave", () => this.leave());
      this.svg.addEventListener("blur", () => this.leave());
      this.svg.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => this.draw()).observe(place);
    }

    get visible() {
      return this.panel.curves.filter((curve) => !this.hidden.has(curve.label) && curve[this.over]);
    }

    across(over) {
      this.over = over;
      this.leave();
      this.draw();
    }

    toggle(label, shown) {
      if (shown) this.hidden.delete(label);
      else this.hidden.add(label);
      this.leave();
      this.draw();
    }

    draw() {
      const width = this.place.clientWidth;
      if (!width) return; // folded away
      const height = Math.round(Math.max(200, Math.min(300, width * 0.62)));
      if (this.size !== width) {
        this.size = width;
        this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
        this.svg.setAttribute("height", height);
      }
      this.svg.replaceChildren();
      const curves = this.visible;
      if (!curves.length) {
        const known = this.panel.curves.some((curve) => curve[this.over]);
        const why = known ? "every curve is switched off" : "core-hours are not known";
        svgElement(this.svg, "text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, why);
        return;
      }
      let low = Infinity, high = -Infinity, last = 0;
      for (const curve of curves) {
        curve.mean.forEach((mean, i) => {
          low = Math.min(low, mean - curve.half_std[i]);
          high = Math.max(high, mean + curve.half_std[i]);
        });
        last = Math.max(last, curve[this.over].at(-1));
      }
      const room = (high - low || Math.abs(high) || 1) * 0.05;
      low -= room;
      high += room;
      const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
      last ||= 1;
      // What others need may be a hundred times as much: then hours are drawn on a logarithmic scale.
      const log = this.over === "hours" && curves.some((curve) => curve.thin);
      const first = log ? Math.min(...curves.flatMap((curve) => curve.hours).filter((hours) => hours > 0)) : 0;
      const share = (place) => (log ? Math.log(Math.max(place, first) / first) / Math.log(last / first || 1) : place / last);
      this.x = (place) => MARGIN.left + share(place) * (right - MARGIN.left);
      this.y = (value) => bottom - ((value - low) / (high - low)) * (bottom - MARGIN.top);
      this.unx = (x) => {
        const at = (x - MARGIN.left) / (right - MARGIN.left);
        return log ? first * (last / first) ** at : at * last;
      };
      this.bottom = bottom;

      for (const value of ticks(low, high, 5)) {
        svgElement(this.svg, "line", { class: "grid", x1: MARGIN.left, x2: right, y1: this.y(value), y2: this.y(value) });
        const text = axisNumber(value, Math.max(Math.abs(low), Math.abs(high)));
        svgElement(this.svg, "text", { x: MARGIN.left - 7, y: this.y(value) + 4, "text-anchor": "end" }, text);
      }
      const powers = () => ticks(Math.log10(first), Math.log10(last), 4).filter(Number.isInteger).map((power) => 10 ** power);
      for (const place of log ? powers() : ticks(0, last, width < 420 ? 4 : 6)) {
        const anchor = this.x(place) > right - 14 ? "end" : "middle";
        svgElement(this.svg, "text", { x: this.x(place), y: height - 7, "text-anchor": anchor }, axisNumber(place, last));
      }
      for (const curve of curves) this.drawCurve(curve);
      this.cursor = svgElement(this.svg, "g", {});
    }

    drawCurve(curve) {
      const group = svgElement(this.svg, "g", { "data-curve": curve.label });
      const places = curve[this.over];
      const point = (i, value) => `${this.x(places[i]).toFixed(1)},${this.y(value).toFixed(1)}`;
      const up = places.map((_, i) => point(i, curve.mean[i] + curve.half_std[i]));
      const down = places.map((_, i) => point(i, curve.mean[i] - curve.half_std[i])).reverse();
      svgElement(group, "polygon", { points: [...up, ...down].join(" "), fill: curve.colour, opacity: curve.thin ? 0.05 : 0.14 });
      const all = Math.max(...curve.runs);
      const whole = curve.runs.filter((runs) => runs === all).length; // fewer runs only ever at the end
      const line = (from, to, dashes) => {
        const points = [];
        for (let i = from; i < to; i++) points.push(point(i, curve.mean[i]));
        const style = { fill: "none", stroke: curve.colour, "stroke-width": curve.thin ? 1 : 2, "stroke-linejoin": "round" };
        if (points.length > 1) svgElement(group, "polyline", { points: points.join(" "), ...style, ...dashes });
      };
      line(0, whole, {});
      line(Math.max(whole - 1, 0), places.length, whole < places.length ? { "stroke-dasharray": "5 4" } : {});
      if (places.length === 1) {
        const [x, y] = point(0, curve.mean[0]).split(",");
        svgElement(group, "circle", { cx: x, cy: y, r: 3, fill: curve.colour });
      }
    }

    point(event) {
      const box = this.svg.getBoundingClientRect();
      this.showAt(this.unx?.(event.clientX - box.left));
    }

    key(event) {
      const curve = this.visible[0];
      if (event.key === "Escape") this.leave();
      if (!curve || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      event.preventDefault();
      const places = [...new Set(curve[this.over])]; // several evaluations may lie at 0 core-hours
      const here = this.at === null ? -1 : nearest(places, this.at);
      const next = here + (event.key === "ArrowRight" ? 1 : -1);
      this.showAt(places[Math.max(0, Math.min(places.length - 1, next))]);
    }

    leave() {
      this.at = null;
      this.tip.hidden = true;
      this.cursor?.replaceChildren();
    }

    showAt(place) {
      const curves = this.visible;
      if (place === undefined || !curves.length || !this.cursor) return;
      const places = [...new Set(curves.flatMap((curve) => curve[this.over]))];
      this.at = places[nearest(places, place)];
      // Runs are evaluated at the same steps, but each after hours of its own: then its nearest evaluation is shown.
      const index = (own) =>
        this.over === "steps" ? own.indexOf(this.at) : this.at <= own.at(-1) ? nearest(own, this.at) : -1;
      const values = curves
        .map((curve) => ({ curve, i: index(curve[this.over]) }))
        .filter(({ i }) => i >= 0)
        .sort((a, b) => b.curve.mean[b.i] - a.curve.mean[a.i]);
      const x = this.x(this.at);
      this.cursor.replaceChildren();
      svgElement(this.cursor, "line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: this.bottom });
      const title = document.createElement("b");
      const unit = this.over === "steps" ? "steps" : "core-hours";
      title.textContent = `${this.at.toLocaleString("en")} ${unit}`;
      this.tip.replaceChildren(title);
      for (const { curve, i } of values) {
        svgElement(this.cursor, "circle", { cx: this.x(curve[this.over][i]), cy: this.y(curve.mean[i]), r: 3.5, fill: curve.colour });
        const row = document.createElement("div");
        const [dot, label, value] = ["i", "span", "em"].map((name) => document.createElement(name));
        dot.style.background = curve.colour;
        label.textContent = curve.label;
        const fewer = curve.runs[i] < Math.max(...curve.runs) ? ` (${curve.runs[i]} of ${Math.max(...curve.runs)} seeds)` : "";
        value.textContent = `${number(curve.mean[i])} ± ${number(curve.half_std[i])}${fewer}`;
        row.append(dot, label, value);
        this.tip.append(row);
      }
      this.tip.hidden = false;
      const room = this.place.clientWidth - this.tip.offsetWidth;
      this.tip.style.left = `${Math.max(0, Math.min(room, x > this.place.clientWidth / 2 ? x - this.tip.offsetWidth - 12 : x + 12))}px`;
      this.tip.style.top = `${MARGIN.top}px`;
    }
  }

  for (const block of document.querySelectorAll("[data-curves]")) {
    const panels = data[Number(block.dataset.curves)];
    const plots = [...block.querySelectorAll("[data-panel]")].map(
      (figure) => new Plot(figure.querySelector(".plot"), panels[Number(figure.dataset.panel)]));
    const switches = [...block.querySelectorAll(".switch button")];
    for (const button of switches) {
      button.addEventListener("click", () => {
        for (const one of switches) one.setAttribute("aria-pressed", String(one === button));
        for (const plot of plots) plot.across(button.dataset.over);
      });
    }
    for (const button of block.querySelectorAll(".legend button")) {
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        for (const plot of plots) plot.toggle(button.dataset.label, shown);
      });
    }
  }
})();
