"use strict";
// Everything is on the page without this script. It adds: dark or light at will, the table sorted and filtered, links
// copied, and what a mark of a picture says, shown when the pointer or the focus is on it.
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  const theme = byId("theme");
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
  nameTheme();
  byId("controls").hidden = false;

  const told = document.createElement("div");
  told.className = "told";
  told.setAttribute("role", "status");
  told.hidden = true;
  document.body.append(told);
  let hiding = 0;
  const tell = (text, ms) => {
    clearTimeout(hiding);
    told.textContent = text;
    told.hidden = !text;
    if (ms) { hiding = setTimeout(() => tell(""), ms); }
  };

  const all = byId("all");
  if (all && all.tBodies[0].rows.length > 1) {
    const body = all.tBodies[0];
    const asWritten = Array.from(body.rows);
    const heads = Array.from(all.tHead.rows[0].cells);
    const order = new Intl.Collator("en", { numeric: true });
    const textOf = (row, at) => row.cells[at].textContent;
    // A count is compared as a number, whatever stands around it.
    const numberOf = (text) => { const found = text.match(/\d[\d,]*/); return found ? Number(found[0].replaceAll(",", "")) : -1; };
    const isCount = (at) => at === 2;
    heads.forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const next = { ascending: "descending", descending: null }[before] ?? (before ? null : "ascending");
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        const rows = asWritten.slice();
        if (next) {
          head.setAttribute("aria-sort", next);
          const compare = (one, other) => isCount(at)
            ? numberOf(textOf(one, at)) - numberOf(textOf(other, at))
            : order.compare(textOf(one, at), textOf(other, at));
          rows.sort(next === "ascending" ? compare : (one, other) => compare(other, one));
        }
        body.append(...rows);
      });
    });
    const wanted = byId("wanted");
    wanted.addEventListener("input", () => {
      const words = wanted.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      asWritten.forEach((row) => {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      });
      byId("shown").textContent = words.length ? `${shown} of ${asWritten.length}` : "";
    });
    byId("filter").hidden = asWritten.length < 6;
  }

  document.querySelectorAll("a.anchor").forEach((anchor) => {
    anchor.addEventListener("click", () => {
      const address = anchor.href;
      if (navigator.clipboard) {
        navigator.clipboard.writeText(address).then(() => tell("The link is copied", 2000), () => undefined);
      }
    });
  });

  // The marks of a picture: by pointer each, by keyboard with the arrows once the picture has the focus.
  const marksOf = (drawing) => Array.from(drawing.querySelectorAll("[role=graphics-symbol][aria-label]"))
    .filter((mark) => !mark.classList.contains("role-axis") && !mark.classList.contains("role-legend"));
  document.querySelectorAll(".drawing").forEach((drawing) => {
    let at = -1;
    const point = (mark) => {
      drawing.querySelectorAll(".pointed").forEach((one) => one.classList.remove("pointed"));
      if (mark) { mark.classList.add("pointed"); }
      tell(mark ? mark.getAttribute("aria-label") : "");
    };
    drawing.addEventListener("pointerover", (event) => {
      const mark = event.target.closest("[role=graphics-symbol][aria-label]");
      tell(mark && !/role-(axis|legend)/.test(mark.getAttribute("class")) ? mark.getAttribute("aria-label") : "");
    });
    drawing.addEventListener("pointerleave", () => tell(""));
    drawing.addEventListener("blur", () => { at = -1; point(null); });
    drawing.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const marks = step ? marksOf(drawing) : [];
      if (!marks.length) { return; }
      event.preventDefault();
      at = (at + step + marks.length) % marks.length;
      point(marks[at]);
    });
  });
})();
