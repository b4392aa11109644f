//! What slots and entries carry: values, whole and in shards.

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::coding::{Assignment, CodingError, Value, ValueId};
use quorate_core::{NodeId, Wire, digest};

use crate::wire::read_back;

/// An acceptor votes for one value after the other, and a replica gathers shards of one of them: an acceptor never has
/// less of a value than before, and only what has the value's digest is told on as shards of it.
pub fn value(data: &[u8]) {
    let input = Bytes::copy_from_slice(data);
    let Some(values) = read_back::<Vec<Value>>(input.clone()) else {
        return drop(read_back::<Value>(input));
    };
    values.windows(2).for_each(|pair| revote(&pair[0], &pair[1]));
    let Some(id) = values.iter().find_map(Value::coded).map(|coded| coded.id) else { return };
    let all = id.all_shards();
    let mut gathered = None;
    for value in &values {
        let Some(shards) = value.shards(id, all, id.shards.into()) else { continue };
        assert!(shards.id == id && shards.held().without(all).is_empty());
        match &mut gathered {
            None => gathered = Some(shards),
            Some(gathered) => gathered.add(shards),
        }
    }
    let Some(gathered) = gathered else { return };
    match gathered.decode() {
        Ok(whole) => {
            assert!(gathered.held().len() >= id.data.into() && whole.len() == id.len as usize);
            let told = Value::Whole(whole.clone()).shards(id, all, id.shards.into());
            assert_eq!(told.is_some(), digest(&whole) == id.digest);
            let again = told.map(|told| (told.held(), told.decode()));
            assert!(again.is_none_or(|again| again == (all, Ok(whole))));
        }
        Err(CodingError::TooFew(held, needed)) => assert!(held < needed && held == gathered.held().len()),
        Err(other) => panic!("what decodes from the wire are shards of one value: {other}"),
    }
}

fn revote(old: &Value, new: &Value) {
    let voted = new.clone().over(old);
    assert!(voted.is_same(new), "a vote is for what was proposed");
    match (old.coded(), new.coded(), voted.coded()) {
        (Some(old), Some(new), Some(voted)) if old.id == new.id => {
            assert_eq!(voted.held(), old.held().union(new.held()));
        }
        (None, Some(_), voted) if old.is_same(new) => assert!(voted.is_none(), "a whole value stays"),
        _ => assert_eq!(&voted, new),
    }
}

/// Valid encodings.
pub fn value_seeds() -> Vec<Vec<u8>> {
    let (whole, other) = (Bytes::from((0..=200).collect::<Vec<u8>>()), Bytes::from_static(b"other"));
    let node = |id| NodeId::new(id).expect("valid");
    let id = |value: &Bytes, shards, data| {
        let (ballot, digest, len) = (Ballot::ZERO.next(node(2)), digest(value), value.len() as u32);
        ValueId { slot: 7, ballot, digest, len, shards, data }
    };
    let table = Assignment::unbalanced((8, 5), (1..).map(node).zip([5, 5, 5, 3, 1])).expect("a code");
    let dealt = table.voters().iter().map(|voter| table.shards_of(voter, 1));
    let one = |width| id(&whole, 5, 3).split(&whole, width).collect::<Vec<_>>();
    let lists = [
        vec![],
        vec![Value::Whole(whole.clone()), one(1)[1].clone(), Value::Whole(other.clone())],
        one(1),
        one(2),
        vec![one(2)[4].clone(), one(1)[2].clone(), one(1)[2].clone()],
        id(&whole, 8, 5).deal(&whole, dealt).collect(),
        // Of something else than the identity says.
        id(&other, 3, 2).split(&Bytes::from_static(b"lies!"), 1).collect(),
        vec![one(1)[0].clone(), id(&whole, 7, 4).split(&whole, 2).last().expect("seven")],
    ];
    let alone = [Value::Whole(whole.clone()), one(1)[3].clone()];
    lists.iter().map(|list| list.to_bytes()).chain(alone.iter().map(Wire::to_bytes)).map(Into::into).collect()
}
