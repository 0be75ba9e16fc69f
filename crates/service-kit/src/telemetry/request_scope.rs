//! The ID that log lines about a request have. Ambient, like a span, because any code may log; a span would cost every
//! request as much as all of its log lines, of which most requests have none. Handlers take the ID from the request.

use std::future::Future;

use futures_util::future::Either;
use http_server::RequestId;

tokio::task_local! {
    static CURRENT: RequestId;
}

/// The ID of the request on whose behalf the current task works.
pub fn current_request_id() -> Option<RequestId> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Calls a function on behalf of a request, for example on a thread for blocking work.
pub fn enter_request<R>(id: Option<RequestId>, call: impl FnOnce() -> R) -> R {
    match id {
        Some(id) => CURRENT.sync_scope(id, call),
        None => call(),
    }
}

/// Begins to handle a request: also the part of an endpoint before its future is part of it.
pub(crate) fn with_request_id<F: Future>(
    id: Option<RequestId>,
    call: impl FnOnce() -> F,
) -> impl Future<Output = F::Output> {
    let handling = enter_request(id.clone(), call);
    match id {
        Some(id) => Either::Left(CURRENT.scope(id, handling)),
        None => Either::Right(handling),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
