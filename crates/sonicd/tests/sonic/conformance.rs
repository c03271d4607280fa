//! The conformance suite of chips, with syncd as a process reached over Redis and over ZeroMQ.

use crate::bench::Bench as Daemons;
use crate::suite;
use crate::suite::Bench;
use crate::suite::wire::Wire;
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::Stop;
use ribtide_swss::Db;
use ribtide_swss::sai::{SaiCall, SaiReply, SaiRequest, binary, text};
use ribtide_tables::zmq::{self, Endpoint};
use ribtide_tables::{EncodedRequest, Exchange, queue};

/// The number of every request: one is in flight.
const ID: u64 = 7;

fn chip(exchange: Exchange<SaiRequest, SaiReply>) -> Wire<impl FnMut(SaiCall) -> SaiReply> {
    Wire::new(move |call| {
        // All of it, with the thread that reads replies, belongs to the closure.
        let exchange = &exchange;
        exchange.requests.send(SaiRequest { id: ID, call }).unwrap();
        exchange.replies.recv().unwrap().unwrap()
    })
}

mod over_redis {
    use super::*;

    fn each(routes: u32, run: fn(&mut Bench<'_>)) {
        let Some(mut daemons) = Daemons::new() else { return };
        daemons.syncd_with(&format!("-s --chip ipv4-routes={routes}"));
        let stop = Stop::default();
        let encode =
            |request| EncodedRequest { message: text::write_request(&request), pending: Some(request.id) };
        let decode = |id: &u64, message: ribtide_tables::Message| {
            Some(text::read_reply(*id, &message.key, &message.value, &message.op).unwrap())
        };
        let asic = daemons.server.databases.get(Db::Asic);
        let exchange = queue::exchange(asic, "VIDCOUNTER", &Rings::default(), &stop, encode, decode).unwrap();
        run(&mut Bench::new(&mut chip(exchange)).by_text());
        stop.stop();
    }
    suite::conformance!(each);
}

mod over_zmq {
    use super::*;

    fn each(routes: u32, run: fn(&mut Bench<'_>)) {
        let Some(mut daemons) = Daemons::new() else { return };
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let endpoint = format!("tcp://{free}");
        daemons.syncd_with(&format!("-z zmq_sync --zmq-requests {endpoint} --chip ipv4-routes={routes}"));
        let stop = Stop::default();
        // Two of ribtide's exchange route bulks in a binary encoding.
        let encode = |request: &SaiRequest, ours: bool, message: &mut Vec<u8>| {
            if !ours || !binary::write_bulk(request, message) {
                message.extend_from_slice(text::write_request(request).to_zmq().as_bytes());
            }
        };
        let decode = |request: &SaiRequest, message: &[u8]| {
            Some(match binary::read_reply(request.id, message) {
                Some(reply) => reply.unwrap(),
                None => text::read_zmq_reply(request.id, std::str::from_utf8(message).unwrap()).unwrap(),
            })
        };
        let endpoint = Endpoint::parse(&endpoint, 0).unwrap();
        let exchange = zmq::exchange(&endpoint, &Rings::default(), &stop, encode, decode).unwrap();
        run(&mut Bench::new(&mut chip(exchange)).by_text());
        stop.stop();
    }
    suite::conformance!(each);
}
