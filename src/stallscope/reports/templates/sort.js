"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const words = head.classList.contains("word");
      const before = head.getAttribute("aria-sort");
      const first = words ? "ascending" : "descending";
      const order = before === first ? (words ? "descending" : "ascending") : first;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const key = (row) => row.cells[column].dataset.key;
      const compare = words
        ? (a, b) => key(a).localeCompare(key(b), undefined, { numeric: true })
        : (a, b) => Number(key(a)) - Number(key(b));
      body.append(...[...body.rows].sort((a, b) => sign * compare(a, b)));
    });
  });
}
