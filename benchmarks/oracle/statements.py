"""Draw random statements: bindings and changes, events, branches, loops, try, with, match and jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oracle.expressions import Expressions


class Statements(Expressions):
    """Statements of a block; what defines something is drawn by `_definition` of a subclass."""

    def _definition(self) -> None:
        raise TypeError("a grammar draws definitions of its own")

    def _body(self, most: int = 3) -> None:
        for _ in range(self.random.randint(1, most)):
            self._statement()

    def _condition(self) -> tuple[str, bool]:
        """A condition, and whether it can differ between ranks."""
        local = self._one_in(4)
        return self._bool(2, same=not local), local

    def _statement(self) -> None:
        self.left -= 1
        forms: list[tuple[int, Callable[[], None]]] = [
            (6, self._bind), (4, self._event), (3, self._change), (2, self._if), (1, self._for), (1, self._while),
            (1, self._try), (1, self._with), (1, self._match), (1, self._probe), (1, self._comprehension),
        ]  # fmt: skip
        if self.left <= 0:
            forms = [(2, self._bind), (2, self._event), (1, self._probe)]
        elif not self.function and self.indent == 0:
            forms += [(8, self._definition)]
        if self.loops:
            forms += [(1, self._jump)]
        weights = [weight for weight, _ in forms]
        self.random.choices([form for _, form in forms], weights)[0]()

    def _probe(self) -> None:
        self._emit(f"torch.manual_seed({self._int(2)})")

    def _event(self) -> None:
        if (self.local or self.quiet) and not self._one_in(12):
            self._probe()
            return
        group = ""
        form = self.random.randrange(5)
        if form == 0:
            self._emit(f"dist.barrier({group})")
        elif form == 1:
            self._emit(f"dist.all_reduce(torch.ones({self.random.randint(1, 3)}))")
        elif form == 2:
            self._emit("dist.broadcast(torch.ones(2), src=0)")
        elif form == 3:
            self._emit("loss = model(torch.ones(2, 2)).sum()")
            self._emit("loss.backward()")
            self._emit("optimizer.step()")
        else:
            with self._block(f"if {self._bool(2, same=True)}:"):
                self._emit("dist.barrier()")

    def _bind(self) -> None:
        same = self._one_in(2)
        name = self._name()
        differs = not same or bool(self.local) or bool(self.quiet)
        form = self.random.randrange(9)
        if form <= 2:
            self._emit(f"{name} = {self._int(3, same)}")
            self.scope.ints[name] = differs
        elif form == 3:
            self._emit(f"{name} = {self._bool(2, same)}")
            self.scope.bools[name] = differs
        elif form == 4:
            self._emit(f"{name} = {self._text(2, same)}")
            self.scope.texts[name] = differs
        elif form == 5:
            self._emit(f"{name} = {self._list(2, same)}")
            self.scope.lists[name] = differs
        elif form == 6:
            self._emit(f"{name} = {self._dict(2, same)}")
            self.scope.dicts[name] = differs
        elif form == 7:
            other = self._name()
            self._emit(f"{name}, {other} = {self._int(2, same)}, {self._int(2, same)}")
            self.scope.ints[name] = self.scope.ints[other] = differs
        else:
            rest = self._name()
            self._emit(f"{name}, *{rest} = [{self._int(1, same)}, *{self._list(1, same)}]")
            self.scope.ints[name] = self.scope.lists[rest] = differs

    def _change(self) -> None:
        """Change what a name holds, in place or by an augmented assignment."""
        same = self._one_in(2)
        differs = not same or bool(self.local) or bool(self.quiet)
        # In a function an assignment makes a name local: those bound outside of it are only changed in place there.
        own = [name for name in self.scope.ints if name[0] == "v" and name not in self.outside]
        lists = [name for name in self.scope.lists if name[0] == "v"]
        dicts = [name for name in self.scope.dicts if name[0] == "v"]
        flags = [name for name in self.scope.bools if name[0] == "v" and name not in self.outside]
        objects = list(self.scope.objects)
        forms: list[Callable[[], None]] = []

        def mark(names: dict[str, bool], name: str) -> None:
            names[name] = names[name] or differs

        if own:
            name = self.random.choice(own)
            forms += [
                lambda: (
                    self._emit(f"{name} {self._pick('+=', '-=', '|=', '*=')} {self._int(1, same)} % 7"),
                    mark(self.scope.ints, name),
                )
            ] * 2  # type: ignore[list-item]
        if lists:
            listed = self.random.choice(lists)
            forms += [
                lambda: (self._emit(f"{listed}.append({self._int(1, same)})"), mark(self.scope.lists, listed)),
                lambda: (
                    self._emit(f"{listed}.{self._pick('extend', '__iadd__')}({self._list(1, same)})"),
                    mark(self.scope.lists, listed),
                ),
                lambda: (self._emit(f"{listed}.insert(0, {self._int(1, same)})"), mark(self.scope.lists, listed)),
                lambda: (self._emit(f"{listed}.reverse()"), mark(self.scope.lists, listed)),
                lambda: (self._emit(f"if {listed}: {listed}.pop()"), mark(self.scope.lists, listed)),
            ]  # type: ignore[list-item]
        if dicts:
            held = self.random.choice(dicts)
            forms += [
                lambda: (self._emit(f'{held}["{self._pick("a", "b", "c")}"] = {self._int(1, same)}'), mark(self.scope.dicts, held)),
                lambda: (self._emit(f'{held}.setdefault("c", {self._int(1, same)})'), mark(self.scope.dicts, held)),
                lambda: (self._emit(f"{held}.update(b={self._int(1, same)})"), mark(self.scope.dicts, held)),
                lambda: (self._emit(f'{held}.pop("a", None)'), mark(self.scope.dicts, held)),
            ]  # type: ignore[list-item]
        if flags:
            flag = self.random.choice(flags)
            forms += [
                lambda: (
                    self._emit(f"{flag} = {flag} {self._pick('or', 'and')} {self._bool(1, same)}"),
                    mark(self.scope.bools, flag),
                ),
                lambda: (self._emit(f"{flag} |= {self._bool(1, same)}"), mark(self.scope.bools, flag)),
            ]  # type: ignore[list-item]
        if objects:
            made = self.random.choice(objects)
            forms += [
                lambda: (self._emit(f"{made}.n = {self._int(1, same)}"), mark(self.scope.objects, made)),
                lambda: (self._emit(f"{made}.n += 1"), mark(self.scope.objects, made)),
                lambda: (self._emit(f"{made}.next({self._int(1, same)})"), mark(self.scope.objects, made)),
            ]  # type: ignore[list-item]
        if forms:
            self.random.choice(forms)()
        else:
            self._bind()

    def _if(self) -> None:
        test, local = self._condition()
        walrus = self._one_in(6)
        name = self._name()
        with self._block(f"if ({name} := {self._int(1, not local)}) > 1:" if walrus else f"if {test}:", local):
            self._body()
        if self._one_in(4):
            with self._block(f"elif {self._bool(1, same=not local)}:", local):
                self._body(2)
        if self._one_in(2):
            with self._block("else:", local):
                self._body(2)

    @contextmanager
    def _looping(self, header: str, local: bool) -> Iterator[None]:
        self.loops += 1
        with self._block(header, local):
            yield
        self.loops -= 1

    def _for(self) -> None:
        if self.loops >= 2:
            self._bind()
            return
        local = self._one_in(6)
        name, other = self._name(), self._name()
        same = not local
        kind = self.random.randrange(5)
        listed = f"list({self._list(1, same)})"  # a copy: the body may let the list grow
        differs = local or bool(self.local)
        if kind == 0:
            header, names = f"for {name} in range({self._int(1, same)} % 4):", [name]
        elif kind == 1:
            header, names = f"for {name}, {other} in enumerate({listed}):", [name, other]
        elif kind == 2:
            header, names = f"for {name}, {other} in zip({listed}, {self._list(1, same)}):", [name, other]
        elif kind == 3:
            header, names = f"for {other} in list({self._dict(1, same)}.values()):", [other]
        else:
            header, names = f"for {name} in {listed}:", [name]
        with self._looping(header, local):
            for one in names:
                self.scope.ints[one] = differs
            self._body()
        if self._one_in(5):
            with self._block("else:", local):
                self._body(1)

    def _while(self) -> None:
        if self.loops >= 2:
            self._bind()
            return
        local = self._one_in(6)
        name = self._name("left")  # no stem of names that may be changed: the loop has to end
        self._emit(f"{name} = {self._int(1, not local)} % 4")
        with self._looping(self._pick(f"while {name} > 0:", f"while True and {name} > 0:", f"while not {name} <= 0:"), local):
            self._emit(f"{name} -= 1")
            self.scope.ints[name] = local or bool(self.local)
            self._body()
        self.scope.ints[name] = local or bool(self.local)

    def _jump(self) -> None:
        if self.local and not self._one_in(4):
            self._bind()
            return
        local = self._one_in(12)
        self._emit(f"if {self._bool(1, same=not local)}:")
        if self._one_in(3):
            flag = self._name()
            self._emit(f"    {flag} = {self._int(1, not local)}")
        self._emit(f"    {self._pick('break', 'continue')}")

    def _try(self) -> None:
        test, local = self._condition()
        error = self._pick("ValueError", "KeyError", "RuntimeError")
        caught = self._pick(error, "Exception", f"({error}, IndexError)")
        with self._block("try:", local):
            self._body(1)
            with self._block(f"if {test}:", local):
                self._emit(f'raise {error}("drawn")')
            self._body(1)
        name = self._pick("", " as error")
        with self._block(f"except {caught}{name}:", local):
            self._body(1)
        if self._one_in(3):
            with self._block("else:", local):
                self._body(1)
        if self._one_in(3):
            with self._block("finally:"):
                self._body(1)

    def _with(self) -> None:
        manager = self._pick(
            "contextlib.nullcontext()", "contextlib.suppress(ValueError)", "contextlib.ExitStack()", "contextlib.nullcontext(3)"
        )
        name = self._name() if manager.endswith("(3)") else ""
        with self._block(f"with {manager}{f' as {name}' if name else ''}:"):
            if name:
                self.scope.ints[name] = False
            self._body(2)

    def _match(self) -> None:
        local = self._one_in(4)
        with self._block(f"match {self._int(2, not local)} % 4:"):
            for pattern in self.random.sample(["0", "1", "2 | 3", "x if x > 1"], 2):
                with self._block(f"case {pattern}:", local):
                    self._body(1)
            if self._one_in(2):
                with self._block("case _:", local):
                    self._body(1)

    def _comprehension(self) -> None:
        """Effects inside of a comprehension."""
        lists = [name for name in self.scope.lists if name[0] == "v"]
        if lists:
            name = self.random.choice(lists)
            self._emit(f"[{name}.append(i) for i in range({self._int(1)} % 3)]")
            self.scope.lists[name] = True
        else:
            self._emit(f"[torch.manual_seed(i) for i in {self._list(1)}]")
