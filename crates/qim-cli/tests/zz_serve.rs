mod history_server;
#[test]
fn serve() {
    let server = history_server::Server::start();
    std::fs::write("/tmp/zz_addr", server.addr.to_string()).unwrap();
    while !std::path::Path::new("/tmp/zz_stop").exists() {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let s = server.state();
    eprintln!("batches {} records {} overlapped {}", s.batches.len(), s.records(), s.overlapped);
}
