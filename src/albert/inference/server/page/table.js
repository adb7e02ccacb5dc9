// Predictions for a table, row by row; the result is a CSV file with columns for the predictions.

import { urlOf } from "./elements.js";

const CONCURRENT_REQUESTS = 8;
const ATTEMPTS = 5;

const SEPARATORS = { ",": "','", ";": "';'", "\t": "a tab", "|": "'|'" };

/** The text of a file (UTF-8, UTF-16, else Windows-1252), and what was recognised. */
export async function textOf(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const utf16 = { "255,254": "utf-16le", "254,255": "utf-16be" }[`${bytes[0]},${bytes[1]}`];
  if (utf16) return { text: new TextDecoder(utf16).decode(bytes), notes: ["the text is UTF-16"] };
  if (bytes.includes(0)) throw new Error("The file is not text. Save a spreadsheet as CSV, or use albert predict.");
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), notes: [] };
  } catch {
    return { text: new TextDecoder("windows-1252").decode(bytes), notes: ["the text is read as Windows-1252"] };
  }
}

/** The separator that divides the first rows into as many fields as the header, at least two; a comma if none does. */
export function separatorOf(text) {
  const lines = text.slice(0, 100000).split("\n").slice(0, 21);
  const sample = lines.join("\n");
  let best = [",", 0];
  for (const separator of Object.keys(SEPARATORS)) {
    const rows = parseCsv(sample, separator, false).slice(0, -1);
    const width = rows[0]?.length ?? 0;
    const fitting = rows.filter((row) => row.length === width).length / rows.length;
    if (width > 1 && fitting > best[1]) best = [separator, fitting];
  }
  return best[0];
}

/** The rows of a table (RFC 4180), the header first. */
export function parseCsv(text, separator = ",", isComplete = true) {
  const rows = [[""]];
  let quoted = false;
  for (let position = 0; position < text.length; position += 1) {
    const character = text[position];
    const row = rows.at(-1);
    if (quoted) {
      if (character !== '"') row[row.length - 1] += character;
      else if (text[position + 1] === '"') { row[row.length - 1] += '"'; position += 1; } else quoted = false;
    } else if (character === '"' && !row.at(-1)) quoted = true;
    else if (character === separator) row.push("");
    else if (character === "\n") rows.push([""]);
    else if (character !== "\r") row[row.length - 1] += character;
  }
  if (quoted && isComplete) throw new Error("The file ends inside a quoted cell; close its quote.");
  return rows.filter((row) => row.length > 1 || row[0]);
}

/** A line of CSV with commas or semicolons. */
function csvLine(row, separator) {
  const special = separator === ";" ? /[";\r\n]/ : /[",\r\n]/;
  const cells = row.map((value) => (special.test(`${value}`) ? `"${`${value}`.replaceAll('"', '""')}"` : `${value}`));
  return `${cells.join(separator)}\r\n`;
}

/** The rows of a file below its names, which are numbers if the first row is a row. */
export function readTable(text, hasHeader) {
  if (/^\s*[[{]/.test(text)) throw new Error("The file is JSON. Save it as CSV, or use albert predict --input.");
  const separator = separatorOf(text);
  const rows = parseCsv(text.replace(/^\ufeff/, ""), separator);
  const header = hasHeader ? rows.shift() : rows[0]?.map((_, number) => `column ${number + 1}`);
  if (!rows.length) throw new Error("The file has no rows below its header.");
  const uneven = rows.findIndex((row) => row.slice(header.length).some((cell) => cell.trim()));
  if (uneven >= 0) {
    const where = `Row ${uneven + 1 + hasHeader}`;
    throw new Error(`${where} has ${rows[uneven].length} fields where the header has ${header.length}.`);
  }
  return { header, rows, separator, notes: separator === "," ? [] : [`columns are separated by ${SEPARATORS[separator]}`] };
}

const USUAL_NAMES = { pair: ["pair", "text_pair", "text2"], first: ["first", "text"], second: ["second", "text_pair"] };

/** Field -> index of its column: that of the name that the model was trained with, else of a usual name, else -1. */
export function columnsOf(fields, header, learnt) {
  const names = header.map((name) => name.trim());
  const usual = ({ name }) => names.findIndex((each) => (USUAL_NAMES[name] ?? [name]).includes(each.toLowerCase()));
  return Object.fromEntries(fields.map((field) => {
    const trained = names.indexOf(learnt[field.name]);
    return [field.name, trained >= 0 ? trained : usual(field)];
  }));
}

/** Predict every row from its columns; returns the new file's text, and the number of rows that failed. */
export async function answerTable(task, model, { header, rows, separator }, columns, progress) {
  const used = Object.entries(columns).filter(([, column]) => column >= 0);
  const answers = new Array(rows.length);
  let [next, done] = [0, 0];
  async function work() {
    while (next < rows.length) {
      const number = next;
      next += 1;
      const row = Object.fromEntries(used.map(([name, column]) => [name, rows[number][column] ?? ""]));
      answers[number] = await answer(task, model, row);
      const twice = header.find((column) => Object.hasOwn(answers[number], column));
      if (twice) {
        next = rows.length;
        throw new Error(`The file already has a column ${twice}; rename or remove it.`);
      }
      done += 1;
      progress(done);
    }
  }
  await Promise.all(Array.from({ length: CONCURRENT_REQUESTS }, work));
  const added = [...new Set(answers.flatMap(Object.keys))];
  const lines = rows.map((row, number) => [
    ...header.map((_, column) => row[column] ?? ""), ...added.map((name) => answers[number][name] ?? ""),
  ]);
  const written = separator === ";" ? ";" : ",";
  const file = [[...header, ...added], ...lines].map((row) => csvLine(row, written)).join("");
  return { file, failed: answers.filter(({ error }) => error).length };
}

/** The predicted cells of a row; waits while the queue is full, and a few times for a server that is not ready. */
async function answer(task, model, row) {
  for (let attempt = 1; ; attempt += 1) {
    const reply = await fetch(urlOf(task.address), {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(task.body(row)),
    });
    if (reply.status === 429 || (reply.status === 503 && attempt < ATTEMPTS)) {
      const seconds = Number(reply.headers.get("retry-after") ?? 1);
      await new Promise((later) => setTimeout(later, 1000 * seconds));
      continue;
    }
    const { results, error } = await reply.json();
    return reply.ok ? task.cells(results[0], model) : { error };
  }
}
