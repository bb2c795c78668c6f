use super::*;

fn address(host: &str, port: u16) -> Address {
    Address { host: host.into(), port }
}

fn node(host: &str, port: i64) -> Value {
    Value::Array(vec![Value::BulkString(host.into()), Value::Int(port), Value::BulkString("id".into())])
}

fn range(first: i64, last: i64, nodes: &[Value]) -> Value {
    Value::Array([&[Value::Int(first), Value::Int(last)], nodes].concat())
}

fn parse(ranges: &[Value]) -> SlotMap {
    SlotMap::parse(&Value::Array(ranges.to_vec()), &address("asked", 1)).expect("it is a map")
}

#[test]
fn keys_have_the_slots_that_redis_gives_them() {
    assert_eq!(crc16(b"123456789"), 0x31c3);
    // As CLUSTER KEYSLOT answers.
    for (key, slot) in [("foo", 12_182), ("qim:deployment", 14_426), ("", 0)] {
        assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
    }
    for (key, hashed) in [("qim:{7}:c:x", "7"), ("{a}{b}", "a"), ("{{a}}", "{a"), ("}{a}", "a")] {
        assert_eq!(slot_of(key.as_bytes()), slot_of(hashed.as_bytes()), "{key}");
    }
    for whole in ["{}a", "{a", "a}", "{}{a}"] {
        assert_eq!(slot_of(whole.as_bytes()), crc16(whole.as_bytes()) % SLOTS, "{whole}");
    }
}

#[test]
fn each_slot_of_a_range_has_its_primary_and_those_between_ranges_have_none() {
    let (one, two) = (node("one", 7001), node("two", 7002));
    let map = parse(&[range(0, 99, &[one, node("copy", 7003)]), range(200, 16_383, &[two])]);
    for (slot, host) in [(0, Some("one")), (99, Some("one")), (100, None), (199, None), (16_383, Some("two"))]
    {
        assert_eq!(map.primary_of(slot).map(|primary| &*primary.host), host, "{slot}");
    }
    assert_eq!(map.primaries(), BTreeSet::from([&address("one", 7001), &address("two", 7002)]));
    assert_eq!(map.nodes().len(), 3);
}

#[test]
fn a_slot_that_moved_has_its_new_primary_and_no_other_has() {
    let mut map = parse(&[range(0, 16_383, &[node("one", 7001)])]);
    let before = map.clone();
    map.set(5, address("two", 7002));
    assert_eq!(map.primary_of(5), Some(&address("two", 7002)));
    assert_eq!(map.primary_of(4), map.primary_of(6));
    assert_ne!(map, before);
    assert_eq!(map.primaries().len(), 2);
}

#[test]
fn a_node_without_a_host_is_where_the_one_is_that_was_asked() {
    let nil = Value::Array(vec![Value::Nil, Value::Int(7001)]);
    let map = parse(&[range(0, 9, &[nil]), range(10, 19, &[node("", 7002)]), range(20, 29, &[node("?", 0)])]);
    assert_eq!(map.primary_of(0), Some(&address("asked", 7001)));
    assert_eq!(map.primary_of(10), Some(&address("asked", 7002)));
    assert_eq!(map.primary_of(20), None, "nobody knows where it is");
    let asked = address("asked", 1);
    assert_eq!(Address::told(":7001", &asked), Some(address("asked", 7001)));
    assert_eq!(Address::told("::1:7001", &asked), Some(address("::1", 7001)));
    assert_eq!(Address::told("?:7001", &asked), None);
    assert_eq!(Address::told("nonsense", &asked), None);
}

#[test]
fn what_is_no_map_is_not_taken_for_one() {
    for reply in [Value::Nil, Value::Okay, Value::Array(vec![Value::Int(1)])] {
        assert_eq!(SlotMap::parse(&reply, &address("asked", 1)), None, "{reply:?}");
    }
    assert_eq!(parse(&[]).primary_of(0), None);
}

#[test]
fn most_nodes_are_believed_also_where_they_name_other_replicas() {
    let says = |primary, replica| parse(&[range(0, 16_383, &[node(primary, 1), node(replica, 1)])]);
    let told = [says("old", "a"), says("new", "a"), says("new", "b")];
    assert_eq!(SlotMap::of_most(&told), Some(&told[1]));
    assert_eq!(SlotMap::of_most(&[]), None);
}
