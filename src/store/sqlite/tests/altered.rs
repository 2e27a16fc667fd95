//! Rows, events and keys that somebody altered: each is unreadable alone.

use super::*;

/// Alters one row of three in each of these ways: that draft alone is unreadable.
#[tokio::test]
async fn an_unreadable_row_is_corrupt_alone() {
    let control =
        |value: &str| format!("UPDATE drafts SET control = json_set(control, '$.expires_at', {value}) WHERE n = 2");
    let mut ways: Vec<String> =
        ["''", "'not-a-time'", "'9999-99-99'", "1e30", "-1", "'-009999-01-01T00:00:00Z'", "null"].map(control).into();
    ways.extend(
        [
            "expires_at = -1",
            "expires_at = 9223372036854775807",
            "expires_at = expires_at + 86400000",
            "status = 'running'",
            "status = 'nonsense'",
            "tenant = 'another'",
            "initiator = 'another'",
            "tool = 'another'",
            "risk = 'high'",
            "owner = zeroblob(32)",
            "token = zeroblob(32)",
            "caller_key = zeroblob(3)",
            "lease_until = 5",
            "control = ''",
            "control = '{}'",
            "control = '[' || control || ']'",
            "control = json_set(control, '$.state', json('{\"status\":\"running\",\"phase\":\"claimed\"}')), status = 'running'",
            "control = json_set(control, '$.epoch', 1)",
            "control = json_set(control, '$.epoch', -1)",
            "control = json_remove(control, '$.expires_at')",
        ]
        .map(|set| format!("UPDATE drafts SET {set} WHERE n = 2")),
    );
    ways.push("DELETE FROM sealed WHERE n = 2".to_owned());
    for way in ways {
        let file = File::new();
        let (_, h) = file.open();
        let first = h.held(&h.call("1")).await;
        let second = h.held(&h.call("2")).await;
        let third = h.held(&h.call("3")).await;
        drop(h);
        file.alter(&way);
        let (_, h) = file.open();
        let id = &second.row.id;
        assert!(matches!(h.store().get(id).await, Err(StoreError::Corrupt(_))), "{way}");
        let yes = h.store().decide(h.yes(&second, "ada")).await;
        assert!(matches!(yes, Err(StoreError::Corrupt(_))), "{way}: {yes:?}");
        assert!(matches!(h.store().reject(h.no(&second, h.person("ada"))).await, Err(StoreError::Corrupt(_))), "{way}");
        assert!(h.store().hold(h.hold_of(&h.call("2"))).await.is_err(), "{way}: an equal call is not held beside it");
        let all = crate::store::contract::Filter { limit: 10, ..Default::default() };
        let listed: Vec<_> = h.store().list(&all).await.unwrap().into_iter().map(|stored| stored.row.id).collect();
        assert!(listed.contains(&first.row.id) && listed.contains(&third.row.id) && !listed.contains(id), "{way}");
        h.claimed(&first).await;
        h.advance(Duration::from_secs(900)).await;
        let due = h.store().due(h.store().now(), &[], 10).await.unwrap();
        assert!(due.expired.contains(&third.row.id) && !due.expired.contains(id), "{way}");
        assert!(matches!(h.store().expire(&third.row.id).await, Ok(Ended::Done(_))), "{way}");
        h.settle(&first, Verdict::Failed, Some(crate::draft::outcome::Failure::NotSent)).await;
        assert_eq!(h.get(&third.row.id).await.row.state, State::Expired);
    }
}

#[tokio::test]
async fn unreadable_events_and_keys_do_not_stop_the_others() {
    let file = File::new();
    let (_, h) = file.open();
    for n in 0..3 {
        h.held(&h.call(&format!("{n}"))).await;
    }
    h.store().same_keys(&Digest::of(b"keys")).await.unwrap();
    drop(h);
    file.alter(
        "UPDATE events SET body = 'x' WHERE seq = 2; UPDATE meta SET value = 5 WHERE name = 'keys';
                UPDATE meta SET value = 'soon' WHERE name = 'clock'",
    );
    let (_, h) = file.open();
    for limit in [1, 100] {
        let read = h.events_after(Cursor::default(), limit).await;
        assert_eq!(read.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 3], "by {limit}");
    }
    assert_eq!(h.store().same_keys(&Digest::of(b"keys")).await, Ok(false), "keys that cannot be read are other keys");
}
