"""A real OTLP/HTTP receiver on 127.0.0.1."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver:
    """Takes what is posted to /v1/traces and /v1/metrics; answers with `status`."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.measured: list[ExportMetricsServiceRequest] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces" and receiver.status == 200:
                    receiver.requests.append(ExportTraceServiceRequest.FromString(body))
                if self.path == "/v1/metrics" and receiver.status == 200:
                    receiver.measured.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def points(self) -> dict[tuple[str, ...], float]:
        """The newest value of each series: by name and the values of its attributes."""
        return {
            (metric.name, *(attribute.value.string_value for attribute in point.attributes)): _value(point)
            for request in self.measured
            for of_resource in request.resource_metrics
            for scope in of_resource.scope_metrics
            for metric in scope.metrics
            for point in (*metric.gauge.data_points, *metric.sum.data_points)
        }

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _value(point: NumberDataPoint) -> float:
    return point.as_double or point.as_int
