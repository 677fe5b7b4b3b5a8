//! What a program that writes a folder does on Ctrl-C.

use std::path::Path;
use std::time::Duration;

/// On Ctrl-C, removes the unfinished folder and ends the process with 130.
pub fn remove_when_interrupted(unfinished: &Path) {
    let unfinished = unfinished.to_path_buf();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        if runtime.block_on(interrupted()).is_err() {
            return;
        }
        // The writer may be creating a file in this moment, so once may not be enough.
        for _ in 0..20 {
            if std::fs::remove_dir_all(&unfinished).is_ok() || !unfinished.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        std::process::exit(130);
    });
}

#[cfg(unix)]
async fn interrupted() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result,
        _ = terminate.recv() => Ok(()),
    }
}

#[cfg(not(unix))]
async fn interrupted() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
