//! The conformance suite of chips, with the simulator's chip: while it refuses nothing it is the virtual switch, and
//! with refusals bulks still obey their error mode.

#[path = "../../vswitch/tests/conformance/suite/mod.rs"]
mod suite;

use ribtide_sim::router::{Chip, Refusal};
use ribtide_swss::sai::{Attr, ErrorMode, Item, ObjectType, PacketAction, RouteEntry, Sai, Status, Verb};
use ribtide_vswitch::{Behavior, PortSetup, VirtualSwitch};
use suite::Bench;

fn chip(routes: u32) -> Chip {
    let mut chip = VirtualSwitch::new(PortSetup::usual(), Behavior::default());
    chip.behave([("ipv4-routes", routes.to_string().as_str())]).unwrap();
    Chip::new(chip)
}

fn each(routes: u32, run: fn(&mut Bench<'_>)) {
    run(&mut Bench::new(&mut chip(routes)));
}

suite::conformance!(each);

#[test]
fn refused_entry_of_a_bulk_obeys_its_error_mode() {
    for mode in [ErrorMode::IgnoreError, ErrorMode::StopOnError] {
        let mut chip = chip(suite::ROOMY);
        let bench = Bench::new(&mut chip);
        let (switch, vr) = (bench.switch, bench.vr);
        let (verb, object) = (Verb::Create, ObjectType::RouteEntry);
        chip.refuse(Refusal { object, verb, status: Status::NoMemory, count: 1 });
        let item = |n: u32| {
            let dest = format!("20.0.{n}.0/24").parse().unwrap();
            Item::new(RouteEntry { switch, vr, dest }, [Attr::RoutePacketAction(PacketAction::Drop)])
        };
        let mut items: Vec<Item> = (0..3).map(item).collect();
        let mut statuses = Vec::new();
        chip.bulk(verb, object, &mut items, mode, &mut statuses);
        let behind = match mode {
            ErrorMode::StopOnError => Status::NotExecuted,
            ErrorMode::IgnoreError => Status::Success,
        };
        assert_eq!(statuses, [Status::NoMemory, behind, behind]);
    }
}
