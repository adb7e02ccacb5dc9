// Elements of the page, made without markup in strings: what a user typed is text and never becomes HTML.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  return filled(made, properties, children);
}

export function drawn(tag, properties = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return filled(made, properties, children);
}

function filled(made, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** Probabilities as bars: [{what, share, context?}], the likeliest first. */
export function bars(entries) {
  const list = element("ol", { class: "bars" });
  for (const { what, share, context } of entries) {
    const bar = element("div");
    bar.style.width = `${100 * share}%`;
    const row = element("div", { class: "row" },
      element("span", { class: "what" }, what), element("span", { class: "share" }, percent(share)));
    const item = element("li", {}, row, element("div", { class: "track", "aria-hidden": "true" }, bar));
    if (context) item.append(element("div", { class: "context" }, context));
    list.append(item);
  }
  return list;
}

/** A text in which some stretches are set off: [{start, end, make}], make(slice) gives the element. */
export function passage(text, stretches) {
  const letters = Array.from(text); // places count characters, not halves of surrogate pairs
  const whole = element("p", { class: "passage" });
  let place = 0;
  for (const { start, end, make } of stretches) {
    whole.append(letters.slice(place, start).join(""), make(letters.slice(start, end).join("")));
    place = end;
  }
  whole.append(letters.slice(place).join(""));
  return whole;
}

export function cutNotice(tokens) {
  return tokens ? [element("p", { class: "notice" }, `${tokens} tokens did not fit and were not read.`)] : [];
}

/** What the colours mean: the items of a list, or a sentence where there are none. */
export function legend(items, none) {
  return items.length ? element("ul", { class: "legend", "aria-label": "Labels" }, ...items)
    : element("p", { class: "hint" }, none);
}

/** After which of its layers an early-exit model decided. */
export function exits(depth, layers) {
  const boxes = Array.from({ length: layers }, (_, place) => element("span", { class: place < depth ? "used" : "" }));
  return element("p", { class: "exits" }, element("span", { "aria-hidden": "true" }, ...boxes),
    ` Decided after ${depth} of ${layers} layers.`);
}
