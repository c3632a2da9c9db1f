"""
Metrics, logs, traces and notifications: listeners and readers that cost the guarded call next to nothing.

- `halfopen.instrumentation.prometheus`: the exposition in two text formats, as a WSGI or ASGI application, and a
  collector for prometheus_client; `workers` merges the processes of one server.
- `halfopen.instrumentation.opentelemetry`: the same instruments through the OpenTelemetry API, and span events.
- `halfopen.instrumentation.logging`: one line for each move, and a line now and then for refusals.
- `halfopen.instrumentation.notifications`: moves told to a webhook, a command or a callable.
"""
