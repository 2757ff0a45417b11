"""z3: systems of integer inequalities and of bit vectors, solved one after the other."""

from __future__ import annotations

import random
from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution

PROBLEMS = 14
VARIABLES = 110


def integers(seed: int) -> str:
    """A satisfiable or unsatisfiable mixture of alternatives over small integers, in SMT-LIB."""
    chance = random.Random(seed)
    lines = []
    for i in range(VARIABLES):
        lines.append(f"(declare-const x{i} Int)(assert (and (>= x{i} 0) (<= x{i} 60)))")
    for _ in range(VARIABLES):
        a, b, c, d = chance.sample(range(VARIABLES), 4)
        terms = " ".join(f"(* {chance.randrange(1, 7)} x{v})" for v in (a, b, c, d))
        lines.append(
            f"(assert (or (<= (+ {terms}) {chance.randrange(60, 200)})"
            f" (> x{a} (+ x{b} {chance.randrange(9)}))))"
        )
        lines.append(f"(assert (not (= x{c} (+ x{d} {chance.randrange(4)}))))")
    return "\n".join([*lines, "(check-sat)", "(reset)", ""])


def vectors(bits: int) -> str:
    """That multiplication distributes over addition: proved by search over single bits."""
    declared = "".join(f"(declare-const {name} (_ BitVec {bits}))" for name in "abc")
    left, right = "(bvmul a (bvadd b c))", "(bvadd (bvmul c a) (bvmul b a))"
    return f"{declared}(assert (distinct {left} {right}))(check-sat)(reset)\n"


class Z3(RealProgram):
    """A solver: small nodes, vectors that grow, much that is dropped at once."""

    name = "z3"
    about = "systems of integer inequalities and bit vectors"
    executable = Path("/usr/bin/z3")
    packages = ("z3",)

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        problems = scaled(PROBLEMS, scale)
        text = "".join(integers(seed) + vectors(4 + seed % 2) for seed in range(problems))
        done = execution.command([str(self.executable), "-smt2", "-in"], stdin=text.encode())
        return Outcome(2 * problems, "problems", done.stdout)
