// A column's head sorts its table; a second time turns the order round.
for (const head of document.querySelectorAll("thead th[data-sort]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0];
    const at = [...head.parentNode.children].indexOf(head);
    const isDown = head.dataset.sort === "up";
    for (const other of head.parentNode.children) {
      if ("sort" in other.dataset) other.dataset.sort = "";
      other.removeAttribute("aria-sort");
    }
    head.dataset.sort = isDown ? "down" : "up";
    head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    const key = (row) => row.cells[at].dataset.value ?? row.cells[at].textContent;
    const number = (text) => (text === "-" || text === "" ? Infinity : parseFloat(text));
    const rows = [...body.rows].sort((a, b) => {
      const one = key(a), two = key(b);
      const order = isNaN(number(one)) || isNaN(number(two))
        ? one.localeCompare(two) : (number(one) > number(two)) - (number(one) < number(two));
      return isDown ? -order : order;
    });
    body.append(...rows);
  });
}
