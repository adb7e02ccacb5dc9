// Elements of the page, built without markup in strings: a user's input is text and never becomes HTML.

export function element(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** The URL of an address of the server, which may stand below a path of a reverse proxy. */
export const urlOf = (address) => new URL(`.${address}`, location.href).href;

export const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** Probabilities as bars: [{label, share, context?}], most likely first. */
export function bars(entries) {
  const list = element("ol", { class: "bars" });
  for (const { label, share, context } of entries) {
    const bar = element("div");
    bar.style.width = `${100 * share}%`;
    const row = element("div", { class: "row" },
      element("span", { class: "label" }, label), element("span", { class: "share" }, percent(share)));
    const item = element("li", {}, row, element("div", { class: "track", "aria-hidden": "true" }, bar));
    if (context) item.append(element("div", { class: "context" }, context));
    list.append(item);
  }
  return list;
}

/** A text with marked spans: [{start, end, make}], make(slice) returns the element of a span. */
export function passage(text, spans) {
  const characters = Array.from(text); // offsets count characters, not UTF-16 code units
  const paragraph = element("p", { class: "passage" });
  let last = 0;
  for (const { start, end, make } of spans) {
    paragraph.append(characters.slice(last, start).join(""), make(characters.slice(start, end).join("")));
    last = end;
  }
  paragraph.append(characters.slice(last).join(""));
  return paragraph;
}

export function cutNotice(tokens) {
  return tokens ? [element("p", { class: "notice" }, `${tokens} tokens did not fit and were not read.`)] : [];
}

export function emptyNotice(empty) {
  return empty ? [element("p", { class: "notice" }, "The text is empty: this result means nothing.")] : [];
}

/** A legend of colours, or a sentence if there are no items. */
export function legend(items, emptyText) {
  return items.length ? element("ul", { class: "legend", "aria-label": "Labels" }, ...items)
    : element("p", { class: "hint" }, emptyText);
}
