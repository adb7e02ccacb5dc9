// The OpenAPI document as a page: for each endpoint its description, an example, fields, and statuses.

import { element, urlOf } from "./elements.js";

const MEANINGS = {
  400: "invalid JSON or HTTP", 408: "the request arrived too slowly", 413: "too large", 415: "not JSON in UTF-8",
  422: "invalid fields, or not supported by this model", 429: "the queue is full; see Retry-After",
  503: "loading or shutting down", 504: "timeout",
};

const openapi = await (await fetch("openapi.json")).json();
const resolved = (schema) => (schema?.$ref ? openapi.components.schemas[schema.$ref.split("/").pop()] : schema ?? {});

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
    const note = required.includes(name) ? "" : `; ${standard === null ? "optional" : `${JSON.stringify(standard)} by default`}`;
    return [element("dt", {}, name),
      element("dd", {}, `${kind(each)}${note}${each.description ? `. ${each.description}` : ""}`)];
  });
  return entries.length ? [element("h3", {}, title), element("dl", {}, ...entries)] : [];
}

function endpoint(address, method, operation) {
  const request = resolved(operation.requestBody?.content["application/json"].schema);
  const example = request.examples?.[0];
  const curl = example
    ? `curl ${urlOf(address)} \\\n  -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(example).replaceAll("'", "'\\''")}'`
    : `curl ${urlOf(address)}`;
  const statuses = Object.keys(operation.responses).filter((status) => status !== "200")
    .flatMap((status) => [element("dt", {}, status),
      element("dd", {}, MEANINGS[status] ?? operation.responses[status].description)]);
  return element("article", {},
    element("h2", {}, element("code", {}, `${method.toUpperCase()} ${address}`)),
    element("p", {}, (operation.description ?? "").replaceAll("`", "")),
    element("pre", { tabindex: "0", "aria-label": `Example for ${address}` }, curl),
    ...fields("Request", request),
    ...fields("Reply", operation.responses["200"]?.content?.["application/json"]?.schema),
    ...(statuses.length ? [element("h3", {}, "Errors, with a message under “error”"), element("dl", {}, ...statuses)] : []));
}

document.getElementById("addresses").replaceChildren(
  ...openapi.info.description.trim().split("\n\n").map((part) => element("p", { class: "hint" }, part.replaceAll("`", ""))),
  ...Object.entries(openapi.paths).flatMap(([address, methods]) =>
    Object.entries(methods).map(([method, operation]) => endpoint(address, method, operation))),
);
