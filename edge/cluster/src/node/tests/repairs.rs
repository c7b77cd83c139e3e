use super::*;

#[test]
fn a_node_that_lacks_peers_asks_the_one_that_has_most() {
    let heartbeat = |peers: u64| Heartbeat {
        boot: 5,
        policy: 7,
        warmth: Warmth::Warm,
        outbound: LogState::Flowing,
        peers: [peers, peers, 0],
        ..Heartbeat::default()
    };
    let asks = |out: &[Output]| {
        let asks = |output: &Output| match output {
            Output::PublishHeartbeat { body } => Heartbeat::read(body).unwrap().asks,
            _ => 0,
        };
        out.iter().map(asks).filter(|node| *node > 0).collect::<Vec<_>>()
    };
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    bed.input(Input::Figures(Figures { peers: [100, 100, 900], ..Figures::default() }));
    let mut out = Vec::new();
    for _ in 0..30 {
        bed.hear(2, &heartbeat(120));
        // It expires peers at other times, or may not have told all.
        bed.hear(3, &Heartbeat { policy: 8, ..heartbeat(900) });
        bed.hear(4, &Heartbeat { outbound: LogState::CatchingUp, ..heartbeat(900) });
        out.extend(bed.wait(1000));
    }
    assert_eq!(asks(&out), [2]);
    // The other way, twice within a minute.
    let asking = Heartbeat { asks: 1, ..heartbeat(50) };
    bed.hear(2, &asking);
    let out = bed.wait_storing(300);
    assert!(out.contains(&Output::Walk { since_s: 2701 }), "{out:?}");
    bed.input(Input::WalkEnded);
    bed.hear(2, &asking);
    assert!(!bed.wait_storing(300).iter().any(|output| matches!(output, Output::Walk { .. })));
}

/// Returns the repairs that were begun: the node and the kinds.
fn repairs(out: &[Output]) -> Vec<(u8, Vec<u8>)> {
    let repair = |output: &Output| match output {
        Output::Repair { node, kinds } => Some((*node, kinds.clone())),
        _ => None,
    };
    out.iter().filter_map(repair).collect()
}

/// A node that hears others once a second.
impl Bed {
    /// Advances the time while these nodes have these digests. Returns the repairs that were begun.
    fn hear_rows(&mut self, seconds: u64, nodes: &[(u8, &[u64])]) -> Vec<(u8, Vec<u8>)> {
        let mut begun = Vec::new();
        for _ in 0..seconds {
            for (node, rows) in nodes {
                let rows = rows.to_vec();
                let out = self.hear(*node, &Heartbeat { boot: 5, rows, ..Heartbeat::default() });
                begun.extend(repairs(&out));
            }
            begun.extend(repairs(&self.wait(1000)));
        }
        begun
    }

    fn differing(&self, node: u8) -> Vec<String> {
        let nodes = self.snapshot().nodes;
        nodes.iter().find(|it| it.node == node).unwrap().differing.clone()
    }
}

#[test]
fn rows_that_differ_are_repaired_when_they_do_for_three_heartbeats() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    bed.input(Input::Rows(&[1, 2, 3]));
    assert_eq!(bed.hear_rows(3, &[(2, &[1, 2, 3])]), []);
    // Changes were on their way; then not.
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 9, 3])]), []);
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 2, 3])]), []);
    assert_eq!(bed.hear_rows(4, &[(2, &[1, 9, 3])]), [(2, vec![1])]);
    assert_eq!(bed.differing(2), ["keys"]);
    // One at a time, and after a pause that grows.
    assert_eq!(bed.hear_rows(20, &[(2, &[1, 9, 3]), (3, &[0, 2, 3])]), []);
    bed.input(Input::Repaired);
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 9, 3]), (3, &[0, 2, 3])]), [(3, vec![0])]);
    bed.input(Input::Repaired);
    bed.input(Input::Rows(&[0, 2, 3]));
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 9, 3]), (3, &[0, 2, 3])]), []);
    assert_eq!(bed.hear_rows(3, &[(2, &[1, 9, 3]), (3, &[0, 2, 3])]), [(2, vec![0, 1])]);
    assert!(bed.snapshot().nodes[0].differing_s > 20.0);
}

#[test]
fn a_node_that_is_heard_anew_is_repaired_from_at_once() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    bed.input(Input::Rows(&[1, 2]));
    // Of a later version, which has another kind; and of one that has no rows.
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 7, 3]), (3, &[])]), [(2, vec![1])]);
    assert_eq!((bed.differing(2), bed.differing(3)), (vec!["keys".to_owned()], vec![]));
    bed.input(Input::Repaired);
    // It was away.
    bed.wait(60_000);
    assert!(bed.differing(2).is_empty());
    assert_eq!(bed.hear_rows(2, &[(2, &[1, 7])]), [(2, vec![1])]);
    bed.input(Input::Repaired);
    // An ignored node is not asked.
    bed.input(Input::Ignore { node: 2, is_ignored: true });
    assert_eq!(bed.hear_rows(60, &[(2, &[1, 7])]), []);
}
