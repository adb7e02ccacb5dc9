// A CSV file is answered row by row, and comes back with columns for the answers.

const AT_ONCE = 8;

/** The rows of a CSV file (RFC 4180), the header first. */
export function parseCsv(text) {
  const rows = [[""]];
  let quoted = false;
  for (let place = 0; place < text.length; place += 1) {
    const sign = text[place];
    const row = rows.at(-1);
    if (quoted) {
      if (sign !== '"') row[row.length - 1] += sign;
      else if (text[place + 1] === '"') { row[row.length - 1] += '"'; place += 1; } else quoted = false;
    } else if (sign === '"') quoted = true;
    else if (sign === ",") row.push("");
    else if (sign === "\n") rows.push([""]);
    else if (sign !== "\r") row[row.length - 1] += sign;
  }
  return rows.filter((row) => row.length > 1 || row[0]);
}

const quotedCell = (value) => (/[",\r\n]/.test(`${value}`) ? `"${`${value}`.replaceAll('"', '""')}"` : `${value}`);

/** Which column each field of a task is read from: of its name, else in the order of the columns; optional ones by name. */
export function columnsOf(task, header) {
  const names = { pair: ["pair", "text_pair", "text2"] };
  return Object.fromEntries(task.fields.map(({ name, optional }, place) => {
    const named = header.findIndex((column) => (names[name] ?? [name]).includes(column.trim().toLowerCase()));
    return [name, named >= 0 || optional ? named : place];
  }));
}

/** Answer every row; the new file's text, and how many rows have no answer. */
export async function answerTable(task, text, progress) {
  const [header, ...rows] = parseCsv(text.replace(/^\ufeff/, ""));
  if (!rows.length) throw new Error("The file holds no rows below its header.");
  const columns = columnsOf(task, header);
  const missing = Object.entries(columns).find(([, column]) => column >= header.length);
  if (missing) throw new Error(`The file has no column for ${missing[0]}.`);
  const answers = new Array(rows.length);
  let [next, done] = [0, 0];
  async function work() {
    while (next < rows.length) {
      const number = next;
      next += 1;
      const given = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, rows[number][column] ?? ""]));
      answers[number] = await answer(task, given);
      done += 1;
      progress(done, rows.length);
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const added = [...new Set(answers.flatMap(Object.keys))];
  const lines = rows.map((row, number) => [
    ...header.map((_, column) => row[column] ?? ""), ...added.map((name) => answers[number][name] ?? ""),
  ]);
  const file = [[...header, ...added], ...lines].map((row) => `${row.map(quotedCell).join(",")}\r\n`).join("");
  return { file, rows: rows.length, failed: answers.filter(({ error }) => error).length };
}

/** The cells of one row's answer; a full queue is waited for. */
async function answer(task, given) {
  for (;;) {
    const reply = await fetch(task.address, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(task.body(given)),
    });
    if (reply.status === 429 || reply.status === 503) {
      const seconds = Number(reply.headers.get("retry-after") ?? 1);
      await new Promise((later) => setTimeout(later, 1000 * seconds));
      continue;
    }
    const said = await reply.json();
    return reply.ok ? task.cells(task.all ? said.results : said.results[0]) : { error: said.error };
  }
}
