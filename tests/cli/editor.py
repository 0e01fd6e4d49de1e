"""An editor that speaks the language server protocol by hand: messages as JSON, framed, over the server's input and output."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from typing import Any

Json = dict[str, Any]
PATIENCE = 120  # seconds, for a machine that does other things too


class Editor:
    """One server process with its folder. `published` has everything that came for documents, `messages` and `log` its texts."""

    def __init__(self, folder: Path, capabilities: Json | None = None) -> None:
        command = [sys.executable, "-m", "ddp_audit", "server"]
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.folder = folder
        self.published: list[Json] = []
        self.messages: list[str] = []
        self.log: list[str] = []
        self._answers: dict[int, Json] = {}
        self._number = 0
        self._incoming: Queue[Json] = Queue()
        threading.Thread(target=self._read, daemon=True).start()
        root = {"processId": None, "rootUri": folder.as_uri(), "capabilities": capabilities or {}}
        self.capabilities = self.ask("initialize", root)["capabilities"]
        self.send("initialized", {})

    def __enter__(self) -> Editor:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str, version: int = 1) -> None:
        """Opens a document by its file's name, or by a URI."""
        uri = name if ":" in name else self.uri(name)
        item = {"uri": uri, "languageId": "python", "version": version, "text": text}
        self.send("textDocument/didOpen", {"textDocument": item})

    def change(self, name: str, text: str, version: int) -> None:
        uri = name if ":" in name else self.uri(name)
        self.send("textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]})

    def close(self, name: str) -> None:
        self.send("textDocument/didClose", {"textDocument": {"uri": name if ":" in name else self.uri(name)}})

    def codes(self, name: str, wanted: Callable[[set[str]], bool], version: int | None = None) -> list[Json]:
        """The diagnostics of the first publication, from now or the last one on, whose codes (or "error") are as wanted."""
        uri = name if ":" in name else self.uri(name)

        def found() -> Json | None:
            mine = [one for one in self.published if one["uri"] == uri][-1:]
            fits = [one for one in mine if wanted({d.get("code", "error") for d in one["diagnostics"]})]
            return next((one for one in fits if version is None or one["version"] == version), None)

        diagnostics: list[Json] = self.until(found)["diagnostics"]
        return diagnostics

    def actions(self, name: str, diagnostic: Json) -> list[Json]:
        document = {"uri": name if ":" in name else self.uri(name)}
        asked = {"textDocument": document, "range": diagnostic["range"], "context": {"diagnostics": [diagnostic]}}
        answer: list[Json] = self.ask("textDocument/codeAction", asked)
        return answer

    def ask(self, method: str, params: Any) -> Any:
        """The result of a request."""
        self._number += 1
        number = self._number
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        answer = self.until(lambda: self._answers.pop(number, None))
        assert "error" not in answer, answer
        return answer["result"]

    def send(self, method: str, params: Any) -> None:
        """Sends a notification."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def until(self, found: Callable[[], Any]) -> Any:
        """What `found` gives once it is not None, looked for again after each message."""
        while (value := found()) is None:
            self.take(PATIENCE)
        return value

    def take(self, seconds: float) -> None:
        """Takes one message in. Raises queue.Empty where none comes."""
        message = self._incoming.get(timeout=seconds)
        method = message.get("method")
        if method is None:
            self._answers[message["id"]] = message
        elif method == "textDocument/publishDiagnostics":
            self.published.append(message["params"])
        elif method == "window/showMessage":
            self.messages.append(message["params"]["message"])
        elif method == "window/logMessage":
            self.log.append(message["params"]["message"])

    def drain(self, seconds: float) -> None:
        """Takes in all that comes until nothing comes for some seconds."""
        try:
            while True:
                self.take(seconds)
        except Empty:
            return

    def leave(self, *, shut_down: bool = True) -> tuple[int, str]:
        """The exit code of the server, and what it wrote to its standard error."""
        if shut_down:
            self.ask("shutdown", None)
        self.send("exit", None)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors.decode()

    def _write(self, message: Json) -> None:
        data = json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.process.stdin.flush()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while header := stream.readline():
            size = int(header.split(b":")[1]) if header.lower().startswith(b"content-length") else 0
            if size:
                while stream.readline().strip():
                    pass
                self._incoming.put(json.loads(stream.read(size)))
