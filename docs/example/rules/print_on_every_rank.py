"""A rule of a project's own: `print` in a loop, on every rank."""

from ddp_audit.cst_rule import CstRule, leaving, visiting


class PrintOnEveryRank(CstRule):
    code = "ACME101"
    name = "print-on-every-rank"
    level = "warning"
    summary = "A `print` in a loop that all ranks reach with the same text."
    rationale = "Each line comes once for every rank, and the lines of several ranks run into each other."
    fix_hint = "print on rank 0 only, or print the rank with each line"
    requires = ("print(",)

    VALID = (
        """
        import torch.distributed as dist

        dist.init_process_group("gloo")
        print("before the loop")
        for step in range(10):
            if dist.get_rank() == 0:
                print("step", step)
            print("rank", dist.get_rank(), "is at step", step)
        """,
    )
    INVALID = (
        """
        import torch.distributed as dist

        dist.init_process_group("gloo")
        show = print
        for step in range(10):
            print("step", step)  # finding
            while step > 20:
                show("late")  # finding
        """,
    )

    def begin(self):
        self.loops = 0

    @visiting(lambda m: m.For() | m.While())
    def into_a_loop(self, node):
        self.loops += 1

    @leaving(lambda m: m.For() | m.While())
    def out_of_a_loop(self, node):
        self.loops -= 1

    def visit_Call(self, node):
        if not self.loops or self.name_of(node.func) != "print":
            return
        ranks = self.reached_by(node)
        if ranks is None or len(ranks) < 2:
            return
        if any("rank" in self.differs(argument.value) for argument in node.args):
            return
        self.report(node, f"Ranks {', '.join(map(str, sorted(ranks)))} print the same line.")
