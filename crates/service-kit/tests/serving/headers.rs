//! Headers without end.

use crate::rig::{Rig, args, hello};

fn request(bytes: usize) -> String {
    format!("GET / HTTP/1.1\r\nHost: test\r\nX-Long: {}\r\n\r\n", "x".repeat(bytes))
}

#[tokio::test]
async fn over_sixteen_kilobytes_are_answered_431_with_our_body() {
    let rig = Rig::start(&args(), hello()).await;
    let mut client = rig.connect().await;
    client.send(request(17 * 1024)).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 431);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json()["error"], "headers_too_large");
    assert_eq!(answer.json()["docs"], "https://docs.example#headers_too_large");
}

#[tokio::test]
async fn fifteen_kilobytes_are_fine() {
    let rig = Rig::start(&args(), hello()).await;
    let mut client = rig.connect().await;
    client.send(request(15 * 1024)).await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn a_megabyte_is_refused_without_being_read() {
    let rig = Rig::start(&args(), hello()).await;
    let client = rig.connect().await;
    let (read, mut write) = client.0.into_split();
    // The server stops reading early, so the write may well fail.
    let writing = tokio::spawn(async move {
        let _ = tokio::io::AsyncWriteExt::write_all(&mut write, request(1 << 20).as_bytes()).await;
        write
    });
    let mut head = [0; 12];
    let mut read = read;
    tokio::io::AsyncReadExt::read_exact(&mut read, &mut head).await.expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 431");
    drop(writing.await);
}

#[tokio::test]
async fn an_address_of_seventeen_kilobytes_counts_too() {
    let rig = Rig::start(&args(), hello()).await;
    let mut client = rig.connect().await;
    assert_eq!(client.get(&format!("/?{}", "x".repeat(17 * 1024))).await.status, 431);
}
