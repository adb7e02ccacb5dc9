// The page: a task is picked, a text is typed, the model is asked, the answer shown.

import { element } from "/page/elements.js";
import { showLayers } from "/page/layers.js";
import { TASKS } from "/page/tasks.js";

const at = (id) => document.getElementById(id);
const values = {}; // what was typed, kept when the task changes
let offered = [];
let task = null;
let model = null;

async function begin() {
  theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  model = await loaded();
  const layers = `${model.depth} layer${model.depth === 1 ? "" : "s"}`;
  at("model").textContent = `${model.name} · ${layers}, ${model.hidden_size} wide · ${model.precision} · ${model.device}`;
  document.title = `${model.name} · albert`;
  offered = TASKS.filter(({ address }) => model.addresses.includes(address));
  at("tasks").replaceChildren(...offered.map((each) => element("button", {
    type: "button", role: "tab", id: `task${each.address.replace("/", "-")}`, "aria-controls": "panel",
    onclick: () => pick(each),
  }, each.title)));
  pick(offered.find(({ address }) => `#${address.slice(1)}` === location.hash) ?? offered[0]);
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
  at("fields").replaceChildren(...task.fields.flatMap(({ name, label, rows, optional }) => {
    const field = element("textarea", { id: `field-${name}`, name, rows, spellcheck: "false" });
    field.required = !optional;
    field.value = values[name] ?? "";
    field.addEventListener("input", () => { values[name] = field.value; });
    return [element("label", { for: field.id }, label), field];
  }));
  at("examples").lastElementChild.replaceChildren(...task.examples.map((example) =>
    element("button", { type: "button", onclick: () => take(example) }, Object.values(example)[0])));
  forget();
}

function take(example) {
  for (const { name } of task.fields) {
    values[name] = example[name] ?? "";
    at(`field-${name}`).value = values[name];
  }
  ask();
}

function forget() {
  at("answer").replaceChildren(element("p", { class: "hint" }, "Write something, or take an example."));
  at("latency").textContent = "";
  at("error").hidden = true;
  at("layers").hidden = true;
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

async function ask() {
  if (!at("form").reportValidity()) return;
  const [asked, given] = [task, typed()];
  at("layers").hidden = true;
  const reply = await request(asked.address, asked.body(given));
  if (reply === null || asked !== task) return;
  at("latency").textContent = reply.latency;
  at("answer").replaceChildren(...asked.show(asked.all ? reply.results : reply.results[0], given));
  at("answer").scrollIntoView({ block: "nearest" });
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

function theme(name) {
  document.documentElement.dataset.theme = name;
  at("theme").textContent = name === "dark" ? "Light" : "Dark";
  at("theme").setAttribute("aria-label", name === "dark" ? "Light colours" : "Dark colours");
  document.dispatchEvent(new Event("theme"));
}

at("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
at("form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
at("inside").addEventListener("click", look);
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
