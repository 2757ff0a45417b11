// A click on a column's head sorts its table by it; a second click turns the order round.
for (const head of document.querySelectorAll("thead th[data-sort]")) {
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0];
    const at = [...head.parentNode.children].indexOf(head);
    const down = head.dataset.sort === "up";
    for (const other of head.parentNode.children) other.dataset.sort = "";
    head.dataset.sort = down ? "down" : "up";
    const key = (row) => row.cells[at].dataset.value ?? row.cells[at].textContent;
    const number = (text) => (text === "-" || text === "" ? Infinity : parseFloat(text));
    const rows = [...body.rows].sort((a, b) => {
      const one = key(a), two = key(b);
      const order = isNaN(number(one)) || isNaN(number(two))
        ? one.localeCompare(two) : (number(one) > number(two)) - (number(one) < number(two));
      return down ? -order : order;
    });
    body.append(...rows);
  });
}
