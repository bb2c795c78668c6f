use super::*;

fn archive(text: &str) -> ArchiveUrl {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn problem<T: FromStr<Err = InvalidUrl> + fmt::Debug>(text: &str) -> String {
    text.parse::<T>().expect_err(text).to_string()
}

#[test]
fn a_scylla_url_names_nodes_keyspace_and_credentials() {
    let ArchiveUrl::Scylla(url) = archive("scylla://a,b:19042,[::1]:1,[::2]/qim") else { panic!() };
    assert_eq!(url.nodes, ["a:9042", "b:19042", "[::1]:1", "[::2]:9042"]);
    assert_eq!((url.keyspace.as_str(), url.replication_factor), ("qim", 1));
    assert_eq!((url.user, url.password), (None, None));

    let ArchiveUrl::Scylla(url) = archive("scylla://me:p%40%2Fw:x@10.0.0.1/Qim_2?replication_factor=3")
    else {
        panic!()
    };
    assert_eq!(url.nodes, ["10.0.0.1:9042"]);
    assert_eq!((url.keyspace.as_str(), url.replication_factor), ("Qim_2", 3));
    assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@/w:x")));
}

#[test]
fn a_scheme_says_whether_connections_are_over_tls_and_is_shown() {
    for (text, is_tls) in [("scylla://a/k", false), ("scyllas://a/k", true), ("sqlite:a", false)] {
        assert_eq!(archive(text).is_tls(), is_tls, "{text}");
        assert_eq!(archive(&archive(text).to_string()), archive(text));
    }
    for (text, is_tls) in [
        ("redis://a", false),
        ("rediss://a", true),
        ("redis-cluster://a", false),
        ("rediss-cluster://a,b", true),
    ] {
        assert_eq!(text.parse::<RedisUrl>().unwrap().is_tls(), is_tls, "{text}");
    }
}

#[test]
fn a_malformed_scylla_url_is_refused_with_its_fault() {
    for (text, fault) in [
        ("scylla://", "needs a keyspace"),
        ("scylla://a", "needs a keyspace"),
        ("scylla://a/", "needs a keyspace"),
        ("scylla://a/1x", "needs a keyspace"),
        ("scylla://a/b/c", "needs a keyspace"),
        ("scylla://a/b-c", "needs a keyspace"),
        ("scylla:///b", "host"),
        ("scylla://a,/b", "host"),
        ("scylla://a b/c", "white space"),
        ("scylla://::1/b", "host"),
        ("scylla://[x]/b", "host"),
        ("scylla://a:0/b", "from 1 to 65535"),
        ("scylla://a:65536/b", "from 1 to 65535"),
        ("scylla://a:+1/b", "from 1 to 65535"),
        ("scylla://a/b?replication_factor=0", "from 1 to 9"),
        ("scylla://a/b?replication_factor=10", "from 1 to 9"),
        ("scylla://a/b?replication_factor=", "from 1 to 9"),
        ("scylla://a/b?rf=1", "replication_factor=N"),
        ("scylla://a/b#c", "# part"),
        ("scylla://me@a/b", "both a user and a password"),
        ("scylla://:pw@a/b", "both a user and a password"),
        ("scylla://me:p%4@a/b", "%"),
        ("scylla://me:p/w@a/b", "%2F"),
    ] {
        let message = problem::<ArchiveUrl>(text);
        assert!(message.contains(fault), "{text}: {message}");
    }
    assert!(format!("scylla://a/{}", "k".repeat(48)).parse::<ArchiveUrl>().is_ok());
    assert!(format!("scylla://a/{}", "k".repeat(49)).parse::<ArchiveUrl>().is_err());
}

#[test]
fn a21_object_storage_and_other_schemes_are_refused_with_what_is_allowed() {
    for text in
        ["s3://bucket/prefix", "gs://b", "https://h/x", "postgres://h/db", "archive.db", "", "Scylla://a/b"]
    {
        let message = problem::<ArchiveUrl>(text);
        assert!(message.contains("scylla://") && message.contains("sqlite:PATH"), "{message}");
        assert!(message.starts_with(&format!("{text:?} ")), "{message}");
    }
}

#[test]
fn a_sqlite_url_is_a_path_to_a_file() {
    assert_eq!(archive("sqlite:qim-archive.db"), ArchiveUrl::Sqlite("qim-archive.db".into()));
    assert_eq!(archive("sqlite:/var/lib/q m/a?b.db"), ArchiveUrl::Sqlite("/var/lib/q m/a?b.db".into()));
    for text in [
        "sqlite:",
        "sqlite://a.db",
        "sqlite:///a.db",
        "sqlite::memory:",
        "sqlite:file:a?mode=memory",
        "sqlite:/a/",
    ] {
        assert!(problem::<ArchiveUrl>(text).contains("sqlite:PATH"), "{text}");
    }
}

#[test]
fn a_redis_url_is_one_server_or_a_cluster() {
    for text in [
        "redis://127.0.0.1:6379",
        "redis://h",
        "redis://h/",
        "redis://h:1/15?protocol=resp3",
        "redis://:pw@h",
        "rediss://u:pw@[::1]:6380/#insecure",
    ] {
        assert_eq!(text.parse::<RedisUrl>().unwrap(), RedisUrl::Single(text.to_owned()));
    }
    assert_eq!(
        "redis-cluster://h1:7000,h2".parse::<RedisUrl>().unwrap(),
        RedisUrl::Cluster(vec!["redis://h1:7000".to_owned(), "redis://h2:6379".to_owned()])
    );
    assert_eq!(
        "rediss-cluster://u:p%40w@h1,h2/".parse::<RedisUrl>().unwrap(),
        RedisUrl::Cluster(vec!["rediss://u:p%40w@h1:6379".to_owned(), "rediss://u:p%40w@h2:6379".to_owned()])
    );
}

#[test]
fn a_malformed_redis_url_is_refused_with_its_fault() {
    for (text, fault) in [
        ("", "redis-cluster://"),
        ("localhost:6379", "redis-cluster://"),
        ("http://h", "redis-cluster://"),
        ("redis://", "host"),
        ("redis://h1,h2", "redis-cluster://"),
        ("redis://h:x", "from 1 to 65535"),
        ("redis://h/x", "number of a database"),
        ("redis://h?timeout=1", "?protocol="),
        ("redis://h#insecure", "#insecure"),
        ("redis://h ", "white space"),
        ("redis-cluster://h/1", "database 0"),
        ("redis-cluster://", "host"),
    ] {
        let message = problem::<RedisUrl>(text);
        assert!(message.contains(fault), "{text}: {message}");
    }
}

#[test]
fn a_password_is_never_shown() {
    for text in [
        "redis://:SECRET@h:1/0",
        "redis://me:SECRET@h",
        "redis://SECRET@h",
        "redis-cluster://me:SECRET@h1,h2",
        "scylla://me:SECRET@a,b/ks",
        // None of these is valid; what is shown of them must not tell either.
        "redis://me:a/SECRET@h",
        "redis://me:a?b=SECRET@h",
        "redis://me:a@SECRET@h:x",
        "redis://:SECRET",
        "redis://h?password=SECRET",
        "redis://h?protocol=resp2&password=SECRET",
        "scylla://a/SE?password=SECRET",
        "http://me:SECRET@h",
        "me:SECRET@h",
        "SECRET@h",
        "scylla://SE/CRET:SECRET@h/x",
    ] {
        let shown = [
            text.parse::<RedisUrl>().map_or_else(|e| e.to_string(), |url| format!("{url} {url:?}")),
            text.parse::<ArchiveUrl>().map_or_else(|e| e.to_string(), |url| format!("{url} {url:?}")),
            format!("{:?} {:?}", text.parse::<RedisUrl>(), text.parse::<ArchiveUrl>()),
        ];
        assert!(!shown.concat().contains("SECRET"), "{text}: {shown:?}");
        assert!(shown.concat().contains("***"), "{text}: {shown:?}");
    }
}

#[test]
fn what_is_shown_still_tells_where() {
    let shown = |text: &str| text.parse::<RedisUrl>().unwrap().to_string();
    assert_eq!(shown("redis://127.0.0.1:6379"), "redis://127.0.0.1:6379");
    assert_eq!(shown("redis://me:pw@[::1]/2?protocol=resp3"), "redis://me:***@[::1]/2?protocol=resp3");
    assert_eq!(shown("redis-cluster://me:pw@h1,h2:7"), "redis-cluster://me:***@h1:6379,h2:7");
    assert_eq!(
        archive("scylla://me:pw@a,b/ks").to_string(),
        "scylla://me:***@a:9042,b:9042/ks?replication_factor=1"
    );
    assert_eq!(archive("sqlite:a b.db").to_string(), "sqlite:a b.db");
}
