// What a head predicts after each layer.

import { element, percent } from "./elements.js";

const displayed = (piece) => piece.replaceAll("\u2581", "") || "\u2423";

export function showLayers(reply, model, hint, view) {
  const cut = reply.tokens_cut ? ` The first ${reply.tokens.length} tokens are read, ${reply.tokens_cut} are not.` : "";
  hint.textContent = `${model.depth} layers.${cut}`;
  const views = reply.masks.map((mask, number) => lens(mask, reply.masks.length > 1 ? number + 1 : null));
  if (reply.labels.length) views.push(labels(reply));
  if (!views.length) views.push(element("p", { class: "hint" }, "Nothing is predicted: the text has no [MASK]."));
  view.replaceChildren(...views);
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
