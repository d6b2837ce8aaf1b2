//! The equivalents of other programs' values name metrics of the sources.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests end at the first surprise")]

use colmet::equivalent::Ours;
use model::Metric;
use sources::SOURCES;
use std::collections::BTreeMap;

#[test]
fn every_named_metric_exists_and_has_the_meaning_of_its_name() {
    let metrics = SOURCES.iter().flat_map(|spec| spec.metrics);
    let known: BTreeMap<&str, &Metric> = metrics.map(|metric| (&*metric.name, *metric)).collect();
    let groups = colmet::programs()
        .into_iter()
        .flat_map(|(program, groups)| groups.into_iter().map(move |group| (program, group)));
    let rows = groups.flat_map(|(program, group)| {
        group.rows.into_iter().map(move |row| (program, group.name, row))
    });
    for (program, group, row) in rows {
        let named = match &row.ours {
            Ours::Is(_) | Ours::FirstOf(_) | Ours::Grows(_) => {
                row.ours.formulas().iter().flat_map(|formula| formula.metrics()).collect()
            }
            Ours::Label(metric, _) => vec![*metric],
            Ours::Event(_) | Ours::JobsOfNode => continue,
            Ours::Not(why) => {
                assert!(!why.is_empty());
                continue;
            }
        };
        assert!(!named.is_empty());
        for name in named {
            let Some(metric) = known.get(name) else { panic!("{group} {}: {name}", row.theirs) };
            // Colmet's values may be stored before an agent has declared the metric.
            let assumed = Metric::assumed(name).unwrap();
            let is_known = (assumed.unit, assumed.kind) == (metric.unit, metric.kind);
            assert!(is_known || program != "Colmet", "{name}");
        }
    }
}
