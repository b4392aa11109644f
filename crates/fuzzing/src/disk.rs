//! What is read back from a data directory.

use quorate_node::storage::fuzzing;

pub fn wal(data: &[u8]) {
    fuzzing::log(data);
}

pub fn checkpoint(data: &[u8]) {
    fuzzing::checkpoint(data);
}

pub fn identity(data: &[u8]) {
    fuzzing::identity(data);
}

/// See `quorate_node`'s `fuzzing::Script`: records, marks, damage, another segment.
pub fn wal_seeds() -> Vec<Vec<u8>> {
    let record = |step: u8, unsynced: u8| vec![0, step, unsynced, 5, b'h', b'e', b'l', b'l', b'o'];
    let (mark, raw, blank, next) = (vec![4, 0], vec![5, 3, 1, 2, 3], vec![6, 4], vec![7]);
    let plans = [
        vec![record(0, 0), record(0, 1), record(0, 2), mark.clone()],
        vec![record(0, 0), record(0, 0), raw.clone(), record(1, 0)],
        vec![record(0, 0), blank.clone(), record(1, 1), mark.clone()],
        vec![record(0, 0), next.clone(), record(0, 0), raw.clone()],
        vec![record(0, 0), next.clone(), next.clone(), record(0, 0), mark, next],
        vec![raw],
        vec![blank],
    ];
    plans.into_iter().map(|plan| [vec![0], plan.concat()].concat()).collect()
}

pub fn checkpoint_seeds() -> Vec<Vec<u8>> {
    let (record, piece, footer) = ([1, 3, 1, 2, 3], [2, 3, 4, 5, 6], [3, 0]);
    vec![
        [&[0, 1, 1][..], &footer].concat(),
        [&[0, 1, 1][..], &record, &record, &footer].concat(),
        [&[1, 1, 1][..], &record, &piece, &piece, &footer].concat(),
        [&[1, 2, 9][..], &piece, &footer].concat(),
        [&[0, 1, 1][..], &record, &[5, 2, 9, 9]].concat(),
    ]
}

pub fn identity_seeds() -> Vec<Vec<u8>> {
    fuzzing::identities()
}
