//! Queues of sources that are emptied between their ticks.

use super::*;

#[test]
fn a_source_that_begins_to_want_it_is_drained_before_its_next_tick_and_no_longer_than_it_wants() {
    let mut bench = Bench::new(&first_only());
    bench.pass(1_500_000);
    bench.tell("first", "begin");
    bench.pass(1_000_000);
    bench.tell("first", "ok");
    bench.pass(1_000_000);
    let told = &Bench::samples(&bench.batches())["first_value"];
    assert_eq!(told[..], [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (2.1, 1.0), (3.0, 4.0)]);
}

#[test]
fn queues_are_emptied_at_the_multiples_of_what_they_want_and_with_the_ticks() {
    let mut bench = Bench::new(&plan());
    bench.pass(2_100_000);
    let told = &Bench::samples(&bench.batches())["second_value"];
    let times: Vec<f64> = told.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0.0, 0.4, 0.8, 1.0, 1.2, 1.6, 2.0]);
}
