//! Responses as JSON in chunks. The text of a page needs no block of its whole size, and each chunk is freed once
//! the socket has it.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Bytes of a chunk at most.
const CHUNK: usize = 64 * 1024;

/// A JSON document.
#[derive(Debug, Default)]
pub(super) struct JsonText {
    chunks: VecDeque<Bytes>,
    /// Bytes of all chunks.
    len: u64,
}

impl JsonText {
    /// The JSON of `value`.
    ///
    /// # Errors
    /// A map of `value` has keys that are no text.
    pub(super) fn new<T: Serialize>(value: &T) -> serde_json::Result<JsonText> {
        let mut writer = Chunks::default();
        serde_json::to_writer(&mut writer, value)?;
        writer.end_chunk(0);
        Ok(writer.text)
    }
}

/// Writes chunks.
#[derive(Default)]
struct Chunks {
    text: JsonText,
    chunk: Vec<u8>,
}

impl Chunks {
    /// Begins another chunk with this capacity.
    fn end_chunk(&mut self, capacity: usize) {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(capacity));
        if !chunk.is_empty() {
            self.text.len += chunk.len() as u64;
            self.text.chunks.push_back(chunk.into());
        }
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunk.len() >= CHUNK {
            self.end_chunk(CHUNK);
        }
        let room = CHUNK.saturating_sub(self.chunk.len());
        let bytes = bytes.get(..room).unwrap_or(bytes);
        self.chunk.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl HttpBody for JsonText {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = self.chunks.pop_front();
        self.len -= chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len)
    }
}

impl IntoResponse for JsonText {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::new(self));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn json_text_is_the_document_in_chunks_of_bounded_size() {
        for items in [0, 1, 20_000] {
            let value: Vec<String> = (0..items).map(|n| format!("item \"{n}\"")).collect();
            let mut text = JsonText::new(&value).unwrap();
            let expected = serde_json::to_vec(&value).unwrap();
            assert_eq!(text.size_hint().exact(), Some(expected.len() as u64));
            let (mut read, mut context) = (Vec::new(), Context::from_waker(Waker::noop()));
            while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut text).poll_frame(&mut context) {
                let chunk = frame.into_data().unwrap();
                assert!(chunk.len() <= CHUNK && !chunk.is_empty(), "{}", chunk.len());
                read.extend_from_slice(&chunk);
            }
            assert!(read == expected && text.is_end_stream() && text.size_hint().exact() == Some(0));
        }
    }
}
