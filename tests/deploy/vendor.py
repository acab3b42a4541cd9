"""An API server as a vendor ships it: the real one behind a proxy that reports another version of Kubernetes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.admission.api import Api
from tests.cluster.testbed import ControlPlane


@contextmanager
def vendor(plane: ControlPlane, version: str, folder: Path) -> Iterator[Path]:
    """Yield a kubeconfig of the proxy. Only reading is let through."""
    api, alone = Api(plane.kubeconfig), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_GET(self) -> None:
            """Answer as the API server does, but for the version."""
            with alone:  # one connection for all
                answer = api("GET", self.path)
            body = {**answer.body, "gitVersion": version} if self.path.startswith("/version") else answer.body
            data = json.dumps(body).encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        file = folder / "kubeconfig"
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "vendor", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "contexts": [{"name": "vendor", "context": {"cluster": "vendor", "user": ""}}],
            "current-context": "vendor",
        }
        file.write_text(json.dumps(body))
        try:
            yield file
        finally:
            server.shutdown()
            thread.join()
            api.close()
