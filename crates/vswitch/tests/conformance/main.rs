//! The conformance suite, with the virtual switch, and with syncd on it.

mod suite;

use ribtide_swss::sai::{SaiCall, SaiReply, SaiRequest, VidCounter};
use ribtide_swss::syncd::{Syncd, SyncdOut};
use ribtide_vswitch::{Behavior, PortSetup, VirtualSwitch};
use suite::Bench;
use suite::wire::{Wire, by_text};

fn virtual_switch(routes: u32) -> VirtualSwitch {
    let mut chip = VirtualSwitch::new(PortSetup::usual(), Behavior::default());
    chip.behave([("ipv4-routes", routes.to_string().as_str())]).unwrap();
    chip
}

/// syncd on the virtual switch, with every request held against SAI's schema.
struct Server(Syncd<VirtualSwitch>);

impl Server {
    fn new(routes: u32) -> Server {
        Server(Syncd::new(virtual_switch(routes), Box::new(VidCounter::default())))
    }

    fn reply(&mut self, request: SaiRequest) -> SaiReply {
        let mut out = SyncdOut::default();
        self.0.handle(request, &mut out);
        out.replies.pop().unwrap()
    }
}

mod on_the_virtual_switch {
    use super::*;

    fn each(routes: u32, run: fn(&mut Bench<'_>)) {
        run(&mut Bench::new(&mut virtual_switch(routes)));
    }
    suite::conformance!(each);
}

mod on_syncd {
    use super::*;

    fn each(routes: u32, run: fn(&mut Bench<'_>)) {
        let mut server = Server::new(routes);
        let mut wire = Wire::new(|call: SaiCall| server.reply(SaiRequest { id: 1, call }));
        run(&mut Bench::new(&mut wire));
    }
    suite::conformance!(each);
}

mod on_syncd_by_text {
    use super::*;

    fn each(routes: u32, run: fn(&mut Bench<'_>)) {
        let mut server = Server::new(routes);
        let mut wire = Wire::new(|call: SaiCall| by_text(call, |request| server.reply(request)));
        run(&mut Bench::new(&mut wire).by_text());
    }
    suite::conformance!(each);
}
