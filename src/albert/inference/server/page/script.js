// The page: choose a task, enter a text, send it to the model, show the result.

import { element, urlOf } from "./elements.js";
import { showLayers } from "./layers.js";
import { answerTable, columnsOf, readTable, textOf } from "./table.js";
import { loadTasks } from "./tasks.js";

const byId = (id) => document.getElementById(id);
const values = {}; // input, kept when the task changes
let tasks = [];
let task = null;
let model = null;
let last = null; // the displayed request and its results

async function begin() {
  model = await waitForModel();
  const layers = `${model.depth} layer${model.depth === 1 ? "" : "s"}`;
  byId("model").textContent = `${layers}, ${model.hidden_size} wide · ${model.precision} · ${model.device}`;
  const labels = model.labels.slice(0, 8).join(", ") + (model.labels.length > 8 ? ", …" : "");
  document.title = `${model.name}${labels ? `: ${labels}` : ""} · albert`;
  byId("title").textContent = model.name;
  if (labels) byId("model").prepend(element("strong", {}, labels), " · ");
  tasks = (await loadTasks()).filter(({ address }) => model.addresses.includes(address));
  for (const each of tasks) {
    each.fields = each.fields.filter(({ only_pairs }) => !only_pairs || model.pairs !== false)
      .map((field) => (field.only_pairs ? { ...field, optional: model.pairs !== true } : field));
    each.examples = each.examples.filter((row) => each.fields.every(({ name, optional }) => optional || row[name]));
  }
  await useModelExamples();
  byId("tasks").replaceChildren(...tasks.map((each) => element("button", {
    type: "button", role: "tab", id: `task${each.address.replace("/", "-")}`, "aria-controls": "panel",
    onclick: () => selectTask(each),
  }, each.title)));
  selectTask(tasks.find(({ address }) => `#${address.slice(1)}` === location.hash) ?? tasks[0]);
  if (task.examples.length) useExample(task.examples[0], false);
}

/** The reply of `GET /model` once the model is loaded. */
async function waitForModel() {
  for (;;) {
    const reply = await fetch("model");
    if (reply.ok) return reply.json();
    byId("model").textContent = (await reply.json()).error;
    await new Promise((later) => setTimeout(later, 1000));
  }
}

/** Replace a task's examples by rows from the model's folder that have the fields of that task. */
async function useModelExamples() {
  const reply = await fetch("page/examples.json");
  const rows = reply.ok ? (await reply.json()).examples : [];
  for (const each of tasks) {
    const names = each.fields.map(({ name }) => name);
    const required = each.fields.filter(({ optional }) => !optional).map(({ name }) => name);
    const matching = rows.filter((row) => required.every((name) => row[name])
      && Object.keys(row).every((name) => names.includes(name)));
    if (matching.length) each.examples = matching;
  }
}

const shortened = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** The label of an example's button: its question, two texts to compare, or its first text, shortened. */
function nameOf(example) {
  const text = example.question || (example.second && `${example.first} · ${example.second}`)
    || Object.values(example).find(Boolean);
  return shortened(text, 80);
}

function selectTask(chosen) {
  task = chosen;
  for (const tab of byId("tasks").children) {
    const selected = tab.id === `task${task.address.replace("/", "-")}`;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    if (selected) byId("panel").setAttribute("aria-labelledby", tab.id);
  }
  history.replaceState(null, "", `#${task.address.slice(1)}`);
  byId("hint").textContent = task.hint;
  byId("inside").hidden = byId("inside-hint").hidden = !task.inside;
  byId("fields").replaceChildren(...task.fields.flatMap(({ name, label, rows, optional, only_pairs }) => {
    const field = element("textarea", { id: `field-${name}`, name, rows, spellcheck: "false" });
    field.required = !optional;
    field.value = values[name] ?? "";
    field.addEventListener("input", () => { values[name] = field.value; });
    const when = only_pairs && model.pairs === null ? ", if the model was trained on pairs" : "";
    return [element("label", { for: field.id }, label + when), field];
  }));
  byId("examples").lastElementChild.replaceChildren(...task.examples.map((example) =>
    element("button", { type: "button", onclick: () => useExample(example) }, nameOf(example))));
  byId("table").hidden = !task.cells;
  byId("columns").replaceChildren();
  byId("file").value = "";
  byId("file-state").textContent = "";
  clearResult();
}

function useExample(example, scroll = true) {
  for (const { name } of task.fields) {
    values[name] = example[name] ?? "";
    byId(`field-${name}`).value = values[name];
  }
  run(scroll);
}

function clearResult() {
  byId("answer").replaceChildren(element("p", { class: "hint" }, "Enter a text, or choose an example."));
  byId("latency").textContent = "";
  byId("error").hidden = true;
  byId("layers").hidden = true;
  byId("copies").hidden = true;
}

/** Send a request; returns its reply, or shows the error and returns null. */
async function request(address, body) {
  byId("error").hidden = true;
  byId("answer").setAttribute("aria-busy", "true");
  for (const button of [byId("run"), byId("inside")]) button.disabled = true;
  const started = performance.now();
  try {
    const reply = await fetch(urlOf(address), {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
    });
    const content = await reply.json();
    if (!reply.ok) throw new Error(content.error);
    return { results: content.results, latency: latency(performance.now() - started, reply.headers.get("server-timing")) };
  } catch (error) {
    showError(error instanceof TypeError ? "The server cannot be reached." : error.message);
    return null;
  } finally {
    byId("answer").setAttribute("aria-busy", "false");
    for (const button of [byId("run"), byId("inside")]) button.disabled = false;
  }
}

function showError(message) {
  byId("error").textContent = message;
  byId("error").hidden = false;
}

function latency(total, timing) {
  const part = (name) => Number(timing?.match(new RegExp(`${name};dur=([0-9.]+)`))?.[1] ?? NaN);
  const format = (milliseconds) => `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`;
  return `${format(total)} · model ${format(part("model"))} · queue ${format(part("queue"))}`;
}

function inputValues() {
  return Object.fromEntries(task.fields.map(({ name, optional }) => {
    const { value } = byId(`field-${name}`);
    return [name, optional && !value ? undefined : value];
  }));
}

async function run(scroll = true) {
  if (!byId("form").reportValidity()) return;
  const [current, input] = [task, inputValues()];
  byId("layers").hidden = true;
  const body = current.body(input);
  const reply = await request(current.address, body);
  if (reply === null || current !== task) return;
  last = { address: current.address, body, results: reply.results };
  byId("copies").hidden = false;
  byId("copied").textContent = "";
  byId("latency").textContent = reply.latency;
  byId("answer").replaceChildren(...current.show(current.all ? reply.results : reply.results[0], input, model));
  if (scroll) byId("answer").scrollIntoView({ block: "nearest" });
}

async function runLayers() {
  if (!byId("form").reportValidity()) return;
  const current = task;
  const reply = await request("/layers", current.inside(inputValues()));
  if (reply === null || current !== task) return;
  byId("latency").textContent = reply.latency;
  byId("layers").hidden = false;
  showLayers(reply.results[0], model, byId("layers-hint"), byId("layers-view"));
  byId("layers").scrollIntoView({ block: "start" });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed, or a page without TLS
    const field = element("textarea", {});
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  byId("copied").textContent = "Copied.";
}

function curl() {
  const body = JSON.stringify(last.body).replaceAll("'", "'\\''");
  return `curl ${urlOf(last.address)} -H 'Content-Type: application/json' -d '${body}'`;
}

async function openFile(file) {
  byId("error").hidden = true;
  byId("columns").replaceChildren();
  byId("file-state").textContent = "";
  if (!task.cells) {
    showError(`The page reads no files for "${task.title}"; use albert predict --input.`);
    return;
  }
  try {
    const { text, notes } = await textOf(file);
    const learnt = task.fields.map(({ name }) => model.columns[name]).filter(Boolean);
    showColumns(file.name, text, notes, !learnt.length || learnt.some((name) => !/^column \d+$/.test(name)));
  } catch (error) {
    showError(error.message);
  }
}

const rowsOf = ({ rows }) => `${rows.length} row${rows.length === 1 ? "" : "s"}`;

/** Show which columns of a file are read, for the user to change, and a button that predicts its rows. */
function showColumns(name, text, notes, hasHeader) {
  const current = task;
  const table = readTable(text, hasHeader);
  const columns = columnsOf(current.fields, table.header, model.columns);
  const isMissing = ({ name: field, optional }) => !optional && columns[field] < 0;
  const start = element("button", { type: "button" }, `Predict ${rowsOf(table)}`);
  const update = () => { start.disabled = current.fields.some(isMissing); };
  const selects = current.fields.map(({ name: field, label, optional }) => {
    const select = element("select", { id: `column-${field}` },
      element("option", { value: -1 }, optional ? "(none)" : "(choose a column)"),
      ...table.header.map((column, number) => element("option", { value: number }, shortened(column, 60))));
    select.value = columns[field];
    select.addEventListener("change", () => { columns[field] = Number(select.value); update(); });
    return element("p", {}, element("label", { for: select.id }, `Column of “${label}”`), select);
  });
  const header = element("input", { type: "checkbox", id: "has-header" });
  header.checked = hasHeader;
  header.addEventListener("change", () => {
    try {
      showColumns(name, text, notes, header.checked);
    } catch (error) {
      showError(error.message);
    }
  });
  const firstRow = table.rows[0].map((cell) => shortened(cell, 40)).join(" · ");
  start.addEventListener("click", () => answerFile(name, current, table, columns, start));
  update();
  byId("columns").replaceChildren(
    ...selects, element("p", {}, header, element("label", { for: header.id }, "The first row holds the names")),
    element("p", { class: "hint" }, `First of ${rowsOf(table)}: ${shortened(firstRow, 160)}`), start,
  );
  byId("file-state").textContent = [...notes, ...table.notes].join("; ");
}

async function answerFile(name, current, table, columns, start) {
  byId("error").hidden = true;
  start.disabled = true;
  try {
    const progress = (done) => { byId("file-state").textContent = `${done} of ${rowsOf(table)}`; };
    const { file, failed } = await answerTable(current, model, table, columns, progress);
    const link = element("a", {
      href: URL.createObjectURL(new Blob([file], { type: "text/csv" })),
      download: name.replace(/(\.(csv|tsv|txt))?$/i, "-answered.csv"),
    }, "Download again");
    const answered = `${rowsOf(table)} answered${failed ? `, ${failed} without an answer` : ""}`;
    byId("file-state").replaceChildren(`${answered}. `, link);
    link.click();
  } catch (error) {
    showError(error.message);
  } finally {
    start.disabled = false;
  }
}

byId("form").addEventListener("submit", (event) => { event.preventDefault(); run(); });
byId("inside").addEventListener("click", runLayers);
byId("copy-curl").addEventListener("click", () => copy(curl()));
byId("copy-json").addEventListener("click", () => copy(JSON.stringify(last.results, null, 2)));
byId("file").addEventListener("change", () => { if (byId("file").files.length) openFile(byId("file").files[0]); });
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files.length) openFile(event.dataTransfer.files[0]);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
});
byId("tasks").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  selectTask(tasks[(tasks.indexOf(task) + step + tasks.length) % tasks.length]);
  byId(`task${task.address.replace("/", "-")}`).focus();
});

begin();
