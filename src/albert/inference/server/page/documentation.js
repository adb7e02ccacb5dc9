// The OpenAPI document, readable: for each address what it is for, an example to copy, fields, and statuses.

import { element } from "/page/elements.js";

const MEANINGS = {
  400: "not JSON, or no HTTP", 408: "came too slowly", 413: "too large", 415: "not JSON in UTF-8",
  422: "the fields, or what this model can do", 429: "the queue is full: Retry-After says when to come back",
  503: "loading, or ending", 504: "not answered in time",
};

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
const whole = await (await fetch("/openapi.json")).json();
const resolved = (schema) => (schema?.$ref ? whole.components.schemas[schema.$ref.split("/").pop()] : schema ?? {});

function kind(schema) {
  const plain = resolved(schema);
  if (plain.anyOf) return plain.anyOf.map(kind).join(" or ");
  if (plain.enum) return plain.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (plain.const !== undefined) return JSON.stringify(plain.const);
  if (plain.type === "array") return `list of ${kind(plain.items)}`;
  if (plain.type === "object" && plain.properties) {
    return `{${Object.entries(plain.properties).map(([name, each]) => `${name}: ${kind(each)}`).join(", ")}}`;
  }
  return plain.type ?? "anything";
}

function fields(title, schema) {
  const { properties = {}, required = [] } = resolved(schema);
  const entries = Object.entries(properties).flatMap(([name, each]) => {
    const standard = each.default ?? null;
    const note = required.includes(name) ? "" : `; ${standard === null ? "may be left out" : `${JSON.stringify(standard)} by default`}`;
    return [element("dt", {}, name),
      element("dd", {}, `${kind(each)}${note}${each.description ? `. ${each.description}` : ""}`)];
  });
  return entries.length ? [element("h3", {}, title), element("dl", {}, ...entries)] : [];
}

function shown(address, method, what) {
  const asked = resolved(what.requestBody?.content["application/json"].schema);
  const example = asked.examples?.[0];
  const curl = example
    ? `curl ${location.origin}${address} \\\n  -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(example).replaceAll("'", "'\\''")}'`
    : `curl ${location.origin}${address}`;
  const statuses = Object.keys(what.responses).filter((status) => status !== "200")
    .flatMap((status) => [element("dt", {}, status),
      element("dd", {}, MEANINGS[status] ?? what.responses[status].description)]);
  return element("article", {},
    element("h2", {}, element("code", {}, `${method.toUpperCase()} ${address}`)),
    element("p", {}, (what.description ?? "").replaceAll("`", "")),
    element("pre", { tabindex: "0", "aria-label": `Example for ${address}` }, curl),
    ...fields("Request", asked),
    ...fields("Reply", what.responses["200"]?.content?.["application/json"]?.schema),
    ...(statuses.length ? [element("h3", {}, "Refusals, each with one sentence under “error”"), element("dl", {}, ...statuses)] : []));
}

document.getElementById("addresses").replaceChildren(
  ...whole.info.description.trim().split("\n\n").map((part) => element("p", { class: "hint" }, part.replaceAll("`", ""))),
  ...Object.entries(whole.paths).flatMap(([address, methods]) =>
    Object.entries(methods).map(([method, what]) => shown(address, method, what))),
);
