// Layers of the model: attention, how far each layer moves its tokens, a head's predictions after each layer.

import { element, percent, svgElement } from "./elements.js";

const displayed = (piece) => piece.replaceAll("\u2581", "") || "\u2423";

export function showLayers(reply, model, hint, view) {
  const cut = reply.tokens_cut ? ` The first ${reply.tokens.length} tokens are shown, ${reply.tokens_cut} are not.` : "";
  hint.textContent = `${reply.tokens.length} tokens, ${reply.distance.length} layers, ${reply.heads} heads each.${cut}`;
  const layers = reply.distance.length;
  const right = element("div", {},
    element("h3", {}, "Mean L2 distance between a layer's input and output"),
    chart(reply.distance, (value) => value.toFixed(1), "L2 distance between input and output of each layer"),
    element("h3", {}, "Mean angle between them, in degrees"),
    chart(reply.angle, (value) => `${value.toFixed(0)}°`, "Angle between input and output of each layer"));
  for (const [number, mask] of reply.masks.entries()) right.append(lens(mask, reply.masks.length > 1 ? number + 1 : null));
  if (reply.labels.length) right.append(labels(reply));
  view.replaceChildren(element("div", { class: "views" }, attention(reply, layers), right));
}

/** Tokens by tokens, one layer and one head at a time, or the mean of the heads. */
function attention(reply, layers) {
  const bytes = Uint8Array.from(atob(reply.attention), (letter) => letter.charCodeAt(0));
  const n = reply.tokens.length;
  const canvas = element("canvas", { role: "img", tabindex: "0" });
  const summary = element("p", { class: "hint" });
  const layer = slider("Layer", 1, layers, layers, String);
  const head = slider("Head", 0, reply.heads, 0, (value) => (value ? String(value) : "mean"));
  let row = Math.max(0, reply.tokens.indexOf("[MASK]"));

  function share(from, to) {
    const cell = (h) => bytes[(((layer.value() - 1) * reply.heads + h) * n + from) * n + to] / 255;
    if (head.value()) return cell(head.value() - 1);
    let sum = 0;
    for (let h = 0; h < reply.heads; h += 1) sum += cell(h);
    return sum / reply.heads;
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const [heat, soft, ink] = ["--heat", "--soft", "--ink"].map((name) => style.getPropertyValue(name));
    const width = canvas.clientWidth || 320;
    const margin = Math.min(84, width * 0.24);
    const side = (width - margin) / n;
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = width * ratio;
    canvas.style.height = `${width}px`;
    const brush = canvas.getContext("2d");
    brush.scale(ratio, ratio);
    brush.clearRect(0, 0, width, width);
    brush.font = `${Math.min(12, Math.max(7, side * 0.8))}px system-ui, sans-serif`;
    brush.textBaseline = "middle";
    const named = side >= 7;
    for (let from = 0; from < n; from += 1) {
      for (let to = 0; to < n; to += 1) {
        brush.fillStyle = `rgba(${heat}, ${0.03 + 0.97 * Math.sqrt(share(from, to))})`;
        brush.fillRect(margin + to * side, margin + from * side, Math.max(side - 1, 1), Math.max(side - 1, 1));
      }
      brush.fillStyle = from === row ? ink : soft;
      if (named || from === row) {
        brush.textAlign = "right";
        brush.fillText(displayed(reply.tokens[from]), margin - 6, margin + (from + 0.5) * side, margin - 8);
      }
      if (named) {
        brush.save();
        brush.translate(margin + (from + 0.5) * side, margin - 6);
        brush.rotate(-Math.PI / 2);
        brush.textAlign = "left";
        brush.fillStyle = soft;
        brush.fillText(displayed(reply.tokens[from]), 0, 0, margin - 8);
        brush.restore();
      }
    }
    brush.strokeStyle = ink;
    brush.strokeRect(margin - 0.5, margin + row * side - 0.5, n * side, side);
    const best = [...Array(n).keys()].sort((one, other) => share(row, other) - share(row, one)).slice(0, 4);
    summary.textContent = `${displayed(reply.tokens[row])} attends to ${best
      .map((to) => `${displayed(reply.tokens[to])} ${percent(share(row, to))}`).join(", ")}.`;
    canvas.setAttribute("aria-label", `Attention of layer ${layer.value()}. ${summary.textContent}`);
  }

  canvas.addEventListener("pointerdown", (event) => {
    const width = canvas.clientWidth;
    const margin = Math.min(84, width * 0.24);
    const index = Math.floor((event.offsetY - margin) / ((width - margin) / n));
    if (index >= 0 && index < n) { row = index; draw(); }
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    row = (row + step + n) % n;
    draw();
  });
  for (const each of [layer, head]) each.input.addEventListener("input", draw);
  document.addEventListener("theme", draw);
  new ResizeObserver(draw).observe(canvas.parentElement ?? canvas);
  requestAnimationFrame(draw);
  return element("div", {},
    element("h3", {}, "Attention: tokens in rows attend to tokens in columns"),
    element("div", { class: "pickers" }, layer.label, head.label), canvas, summary);
}

function slider(name, least, most, value, format) {
  const input = element("input", { type: "range", min: least, max: most, value });
  const output = element("output", {}, format(value));
  input.addEventListener("input", () => { output.textContent = format(Number(input.value)); });
  return { input, value: () => Number(input.value), label: element("label", {}, name, input, output) };
}

/** A line over the layers. */
function chart(values, format, label) {
  const [width, height, left, bottom] = [360, 130, 40, 20];
  const most = Math.max(...values) * 1.1 || 1;
  const x = (index) => left + ((width - left - 14) * (values.length > 1 ? index / (values.length - 1) : 0.5));
  const y = (value) => (height - bottom) * (1 - value / most) + 4;
  const points = values.map((value, index) => `${x(index)},${y(value)}`).join(" ");
  const picture = svgElement("svg", { class: "chart", viewBox: `0 0 ${width} ${height + 6}`, role: "img",
    "aria-label": `${label}: ${values.map(format).join(", ")}` });
  for (const share of [0, 0.5, 1]) {
    const value = (share * most) / 1.1;
    picture.append(svgElement("line", { class: "grid", x1: left, x2: width - 8, y1: y(value), y2: y(value) }),
      svgElement("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  picture.append(svgElement("polyline", { class: "line", points }));
  values.forEach((value, index) => {
    picture.append(svgElement("circle", { cx: x(index), cy: y(value), r: 3 }, svgElement("title", {}, format(value))),
      svgElement("text", { x: x(index), y: height + 4, "text-anchor": "middle" }, String(index + 1)));
  });
  return picture;
}

/** Predictions for a mask from each layer's output. */
function lens(mask, number) {
  const rows = mask.layers.map((pieces, layer) => shadedRow(layer,
    pieces.slice(0, 4).map(({ piece, score }) => [displayed(piece), score])));
  return element("div", {},
    element("h3", {}, `Predictions for ${number ? `mask ${number}` : "the mask"} after each layer`),
    element("table", { class: "lens" }, element("tbody", {}, ...rows)));
}

function labels(reply) {
  const rows = reply.label_scores.map((scores, layer) => shadedRow(layer,
    scores.map((score, index) => [reply.labels[index], score]).sort((one, other) => other[1] - one[1]).slice(0, 4)));
  return element("div", {},
    element("h3", {}, "Label probabilities after each layer"),
    element("table", { class: "lens" }, element("tbody", {}, ...rows)));
}

function shadedRow(layer, cells) {
  const row = element("tr", {}, element("th", { scope: "row" }, layer ? `layer ${layer}` : "input"));
  for (const [name, share] of cells) {
    const cell = element("td", {}, name, element("small", {}, percent(share)));
    cell.style.background = `rgba(var(--heat), ${0.06 + 0.6 * share})`;
    row.append(cell);
  }
  return row;
}
