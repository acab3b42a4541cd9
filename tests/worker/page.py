"""Two pods for a page in a browser: ``python -m tests.worker.page PORT``. The test starts the notebook's server.

``GET /`` tells where the notebook's pod has its socket and its hub, ``PUT /worker`` starts the worker's pod, and ``PUT
/status`` writes why it does not run, and ``DELETE /`` ends all of it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from jupyter_gpu.model.annotations import WORKER_STATUS
from jupyter_gpu.model.gpu_kind import GpuKind
from tests.builders import GIB
from tests.kernel.builders import gpu
from tests.worker.pods import KEYS, plugin, worker_pod
from tests.worker.two_pods import FIRST_OF_OTHERS, TwoPods, hub


def main(port: int) -> None:
    """Serve until that is asked for."""
    KEYS["status"] = WORKER_STATUS
    with contextlib.ExitStack() as stack:
        own, other = stack.enter_context(plugin()), stack.enter_context(plugin())
        own.annotations.clear()
        own.gpus = (replace(gpu(0), gate=True),)
        other.loads = {gpu(FIRST_OF_OTHERS).uuid: {"utilisation": 30.0, "memory": 8}}
        pods = TwoPods(own, other)
        pods.lends = True
        pods.kinds = (GpuKind("NVIDIA H200", 141 * GIB, gate=True),)
        stack.callback(pods.close)
        about = json.dumps({"socket": str(own.path), "hub": stack.enter_context(hub(own))}).encode()
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_PUT(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with lock:
                    own.annotate(status=text)
                    if self.path == "/worker" and pods.pod is None:
                        pods.pod = stack.enter_context(worker_pod(other))
                self._answer()

            def do_DELETE(self) -> None:
                self._answer()
                threading.Thread(target=server.shutdown).start()

            def _answer(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(about)))
                self.end_headers()
                self.wfile.write(about)

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        stack.callback(server.server_close)
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
