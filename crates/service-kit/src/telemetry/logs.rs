//! The tracing subscriber: writes log lines to standard error and passes spans to the trace exporter.

use std::{future::Future, io};

use anyhow::Context;
use http_server::RequestId;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt::{
        self, FmtContext, FormatEvent, FormatFields,
        format::{JsonFields, Writer},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use super::SPAN_TARGET;
use crate::command_line::use_color;
use crate::flags::{LogFormat, TelemetryArgs};

type BoxLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Installs the global subscriber.
pub(super) fn install(
    service: &'static str,
    args: &TelemetryArgs,
    traces: Option<&SdkTracerProvider>,
) -> anyhow::Result<()> {
    let mut layers = vec![log_layer(args, use_color(&io::stderr()), io::stderr)];
    layers.extend(traces.map(|traces| span_layer(service, traces)));
    tracing_subscriber::registry().with(layers).try_init().context("logging has already been started")
}

fn log_layer<W: io::Write + 'static>(
    args: &TelemetryArgs,
    color: bool,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> BoxLayer {
    let level = args.log_level.clone();
    match args.log_format {
        LogFormat::Text => {
            let line = fmt::format().with_ansi(color);
            let line = WithRequestId { line, add: |line, id| format!("{line} request_id={id}") };
            fmt::layer().event_format(line).with_writer(writer).with_filter(level).boxed()
        }
        LogFormat::Json => {
            let line = fmt::format().json().flatten_event(true);
            let line = line.with_current_span(false).with_span_list(false);
            let line = WithRequestId { line, add: add_to_json };
            let layer = fmt::layer().event_format(line).fmt_fields(JsonFields::new());
            layer.with_writer(writer).with_filter(level).boxed()
        }
    }
}

/// Appends the ID of the current request to a log line, if there is one.
struct WithRequestId<F> {
    line: F,
    /// Adds the ID to a line without its line break.
    add: fn(&str, &RequestId) -> String,
}

/// The characters of an ID need no escaping.
fn add_to_json(line: &str, id: &RequestId) -> String {
    line.strip_suffix('}').map_or(line.to_owned(), |fields| format!("{fields},\"request_id\":\"{id}\"}}"))
}

impl<S, N, F> FormatEvent<S, N> for WithRequestId<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let Some(id) = current_request_id() else {
            return self.line.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.line.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{}", (self.add)(line.trim_end_matches('\n'), &id))
    }
}

/// Exports only our own spans. Those of libraries may contain client addresses.
fn span_layer(service: &'static str, traces: &SdkTracerProvider) -> BoxLayer {
    tracing_opentelemetry::layer()
        .with_tracer(traces.tracer(service))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_filter(Targets::new().with_target(SPAN_TARGET, Level::TRACE))
        .boxed()
}

tokio::task_local! {
    // The ID that log lines about a request have. Ambient, like a span, because any code may log; a span would cost every
    // request as much as all of its log lines, of which most requests have none. Handlers take the ID from the request.
    static CURRENT: Option<RequestId>;
}

/// The ID of the request on whose behalf the current task works.
pub fn current_request_id() -> Option<RequestId> {
    CURRENT.try_with(Clone::clone).ok().flatten()
}

/// Calls a function on behalf of a request, for example on a thread for blocking work.
pub fn enter_request<R>(id: Option<RequestId>, call: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(id, call)
}

/// Begins to handle a request: also the part of an endpoint before its future is part of it.
pub(crate) fn with_request_id<F: Future>(
    id: Option<RequestId>,
    call: impl FnOnce() -> F,
) -> impl Future<Output = F::Output> {
    let handling = enter_request(id.clone(), call);
    CURRENT.scope(id, handling)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use serde_json::Value;

    use super::*;

    /// Collects what is logged.
    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Logs one line on behalf of a request and one without.
    fn log(format: LogFormat, id: &RequestId) -> Vec<String> {
        let (buffer, args) = (Buffer::default(), TelemetryArgs { log_format: format, ..Default::default() });
        let writer = buffer.clone();
        let layer = log_layer(&args, false, move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            enter_request(Some(id.clone()), || tracing::warn!(status = 500, "request failed"));
            tracing::warn!("stopped");
        });
        let log = buffer.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(log).expect("UTF-8").lines().map(str::to_owned).collect()
    }

    #[test]
    fn text_line_ends_with_the_id_of_its_request() {
        let id = RequestId::generate();
        let lines = log(LogFormat::Text, &id);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].ends_with(&format!("request failed status=500 request_id={id}")), "{lines:?}");
        assert!(lines[1].ends_with("stopped"), "{lines:?}");
    }

    #[test]
    fn json_line_has_the_id_of_its_request() {
        let id = RequestId::generate();
        let lines = log(LogFormat::Json, &id);
        let parsed: Vec<Value> =
            lines.iter().map(|line| serde_json::from_str(line).expect("a JSON object")).collect();
        assert_eq!((&parsed[0]["request_id"], &parsed[0]["status"]), (&id.as_str().into(), &500.into()));
        assert_eq!(parsed[1]["message"], "stopped");
        assert!(parsed[1]["request_id"].is_null(), "{lines:?}");
    }

    #[tokio::test]
    async fn id_is_current_only_while_its_request_is_handled() {
        assert_eq!(current_request_id(), None);
        let id = RequestId::generate();
        let handling = with_request_id(Some(id.clone()), async || current_request_id());
        assert_eq!(current_request_id(), None);
        assert_eq!(handling.await, Some(id.clone()));
        assert_eq!(enter_request(Some(id.clone()), current_request_id), Some(id));
        assert_eq!(current_request_id(), None);
    }
}
