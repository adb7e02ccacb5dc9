// The page: a task is picked, a text is typed, the model is asked, the answer shown.

import { element } from "/page/elements.js";
import { showLayers } from "/page/layers.js";
import { answerTable } from "/page/table.js";
import { loadTasks } from "/page/tasks.js";

const at = (id) => document.getElementById(id);
const values = {}; // what was typed, kept when the task changes
let offered = [];
let task = null;
let model = null;
let last = null; // the address, body and reply that are shown

async function begin() {
  theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  model = await loaded();
  const layers = `${model.depth} layer${model.depth === 1 ? "" : "s"}`;
  at("model").textContent = `${layers}, ${model.hidden_size} wide · ${model.precision} · ${model.device}`;
  const labels = model.labels.slice(0, 8).join(", ") + (model.labels.length > 8 ? ", …" : "");
  document.title = `${model.name}${labels ? `: ${labels}` : ""} · albert`;
  at("title").textContent = model.name;
  if (labels) at("model").prepend(element("strong", {}, labels), " · ");
  offered = (await loadTasks()).filter(({ address }) => model.addresses.includes(address));
  for (const each of offered) {
    each.fields = each.fields.filter(({ only_pairs }) => !only_pairs || model.pairs !== false);
  }
  await takeOwnExamples();
  at("tasks").replaceChildren(...offered.map((each) => element("button", {
    type: "button", role: "tab", id: `task${each.address.replace("/", "-")}`, "aria-controls": "panel",
    onclick: () => pick(each),
  }, each.title)));
  pick(offered.find(({ address }) => `#${address.slice(1)}` === location.hash) ?? offered[0]);
  if (task.examples.length) take(task.examples[0], false);
}

/** What `GET /model` says, once it is there. */
async function loaded() {
  for (;;) {
    const reply = await fetch("/model");
    if (reply.ok) return reply.json();
    at("model").textContent = (await reply.json()).error;
    await new Promise((later) => setTimeout(later, 1000));
  }
}

/** In place of a task's examples, the rows that the model's folder keeps with the fields of that task. */
async function takeOwnExamples() {
  const reply = await fetch("/page/examples.json");
  const own = reply.ok ? (await reply.json()).examples : [];
  for (const each of offered) {
    const names = each.fields.map(({ name }) => name);
    const needed = each.fields.filter(({ optional }) => !optional).map(({ name }) => name);
    const fitting = own.filter((row) => needed.every((name) => row[name])
      && Object.keys(row).every((name) => names.includes(name)));
    if (fitting.length) each.examples = fitting;
  }
}

/** What a button says of an example: its question, two texts to compare, or its first text, as far as there is room. */
function nameOf(example) {
  const text = example.question || (example.second && `${example.first} · ${example.second}`)
    || Object.values(example).find(Boolean);
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}

function pick(chosen) {
  task = chosen;
  for (const tab of at("tasks").children) {
    const selected = tab.id === `task${task.address.replace("/", "-")}`;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    if (selected) at("panel").setAttribute("aria-labelledby", tab.id);
  }
  history.replaceState(null, "", `#${task.address.slice(1)}`);
  at("hint").textContent = task.hint;
  at("fields").replaceChildren(...task.fields.flatMap(({ name, label, rows, optional, only_pairs }) => {
    const field = element("textarea", { id: `field-${name}`, name, rows, spellcheck: "false" });
    field.required = !optional;
    field.value = values[name] ?? "";
    field.addEventListener("input", () => { values[name] = field.value; });
    const when = only_pairs && model.pairs === null ? ", if the model was trained on pairs" : "";
    return [element("label", { for: field.id }, label + when), field];
  }));
  at("examples").lastElementChild.replaceChildren(...task.examples.map((example) =>
    element("button", { type: "button", onclick: () => take(example) }, nameOf(example))));
  forget();
}

function take(example, scroll = true) {
  for (const { name } of task.fields) {
    values[name] = example[name] ?? "";
    at(`field-${name}`).value = values[name];
  }
  ask(scroll);
}

function forget() {
  at("answer").replaceChildren(element("p", { class: "hint" }, "Write something, or take an example."));
  at("latency").textContent = "";
  at("error").hidden = true;
  at("layers").hidden = true;
  at("copies").hidden = true;
}

/** One request; its reply, or null when it failed, which is said. */
async function request(address, body) {
  at("error").hidden = true;
  at("answer").setAttribute("aria-busy", "true");
  for (const button of [at("run"), at("inside")]) button.disabled = true;
  const started = performance.now();
  try {
    const reply = await fetch(address, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
    });
    const said = await reply.json();
    if (!reply.ok) throw new Error(said.error);
    return { results: said.results, latency: latency(performance.now() - started, reply.headers.get("server-timing")) };
  } catch (error) {
    at("error").textContent = error instanceof TypeError ? "The server cannot be reached." : error.message;
    at("error").hidden = false;
    return null;
  } finally {
    at("answer").setAttribute("aria-busy", "false");
    for (const button of [at("run"), at("inside")]) button.disabled = false;
  }
}

function latency(whole, timing) {
  const part = (name) => Number(timing?.match(new RegExp(`${name};dur=([0-9.]+)`))?.[1] ?? NaN);
  const shown = (milliseconds) => `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`;
  return `${shown(whole)} · model ${shown(part("model"))} · queue ${shown(part("queue"))}`;
}

function typed() {
  return Object.fromEntries(task.fields.map(({ name }) => [name, at(`field-${name}`).value]));
}

async function ask(scroll = true) {
  if (!at("form").reportValidity()) return;
  const [asked, given] = [task, typed()];
  at("layers").hidden = true;
  const body = asked.body(given);
  const reply = await request(asked.address, body);
  if (reply === null || asked !== task) return;
  last = { address: asked.address, body, results: reply.results };
  at("copies").hidden = false;
  at("copied").textContent = "";
  at("latency").textContent = reply.latency;
  at("answer").replaceChildren(...asked.show(asked.all ? reply.results : reply.results[0], given, model));
  if (scroll) at("answer").scrollIntoView({ block: "nearest" });
}

async function look() {
  if (!at("form").reportValidity()) return;
  const asked = task;
  const reply = await request("/layers", asked.inside(typed()));
  if (reply === null || asked !== task) return;
  at("latency").textContent = reply.latency;
  at("layers").hidden = false;
  showLayers(reply.results[0], model, at("layers-hint"), at("layers-view"));
  at("layers").scrollIntoView({ block: "start" });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed, or a page without TLS: the old way
    const field = element("textarea", {});
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  at("copied").textContent = "Copied.";
}

function curl() {
  const body = JSON.stringify(last.body).replaceAll("'", "'\\''");
  return `curl ${location.origin}${last.address} -H 'Content-Type: application/json' -d '${body}'`;
}

async function answerFile(file) {
  at("error").hidden = true;
  const asked = task;
  try {
    const told = (done, all) => { at("file-state").textContent = `${done} of ${all} rows`; };
    const { file: content, rows, failed } = await answerTable(asked, await file.text(), told);
    const link = element("a", {
      href: URL.createObjectURL(new Blob([content], { type: "text/csv" })),
      download: file.name.replace(/(\.csv)?$/i, "-answered.csv"),
    }, "Download again");
    at("file-state").replaceChildren(`${rows} rows answered${failed ? `, ${failed} without an answer` : ""}. `, link);
    link.click();
  } catch (error) {
    at("error").textContent = error.message;
    at("error").hidden = false;
  }
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  at("theme").textContent = name === "dark" ? "Light" : "Dark";
  at("theme").setAttribute("aria-label", name === "dark" ? "Light colours" : "Dark colours");
  document.dispatchEvent(new Event("theme"));
}

at("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
at("form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
at("inside").addEventListener("click", look);
at("copy-curl").addEventListener("click", () => copy(curl()));
at("copy-json").addEventListener("click", () => copy(JSON.stringify(last.results, null, 2)));
at("file").addEventListener("change", () => { if (at("file").files.length) answerFile(at("file").files[0]); });
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files.length) answerFile(event.dataTransfer.files[0]);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); ask(); }
});
at("tasks").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  pick(offered[(offered.indexOf(task) + step + offered.length) % offered.length]);
  at(`task${task.address.replace("/", "-")}`).focus();
});

begin();
