//! How much memory a build takes at most: that of another process, which does nothing but build.

use std::array;
use std::error::Error;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::means::Means;
use crate::measure::{allocated_and_resident, peak_resident};

/// The subcommand that the other process is started with.
pub const BUILD_ONLY: &str = "build-only";

/// The most memory of a build, in bytes.
pub struct Peak {
    /// What the process took beyond one that does nothing, as the kernel sees it.
    pub process: usize,
    pub allocated: usize,
    pub resident: usize,
}

impl Peak {
    pub fn of_another_process(file: File, means: Means) -> Result<Peak, Box<dyn Error>> {
        let [idle, ..] = start(Stdio::null(), means)?;
        let [process, allocated, resident] = start(file.into(), means)?;
        Ok(Peak { process: process - idle, allocated, resident })
    }
}

/// Starts this program anew, to build from `input`, and returns what it prints.
fn start(input: Stdio, means: Means) -> Result<[usize; 3], Box<dyn Error>> {
    let output = Command::new("/proc/self/exe")
        .arg(BUILD_ONLY)
        .args(["--threads", &means.threads.to_string()])
        .args(["--sort-memory", &means.sort_memory.to_string()])
        .stdin(input)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the building process ended with {}", output.status).into());
    }
    let figures = String::from_utf8(output.stdout)?;
    let figures: Vec<usize> = figures.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    Ok(figures.try_into().map_err(|_| "a build prints three figures")?)
}

/// What the other process does: it builds a table of the file that is its standard input, if that is not empty, and
/// prints the most memory it had: all of it, what was allocated, and what was resident for that.
pub fn build_only(means: Means) -> Result<(), Box<dyn Error>> {
    let peaks: [AtomicUsize; 2] = array::from_fn(|_| AtomicUsize::new(0));
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    if input.metadata()?.len() > 0 {
        let builder = means.builder().on_progress(|_| {
            let (allocated, resident) = allocated_and_resident();
            peaks[0].fetch_max(allocated, Ordering::Relaxed);
            peaks[1].fetch_max(resident, Ordering::Relaxed);
            ControlFlow::Continue(())
        });
        builder.table_from_tsv(input)?;
    }
    let [allocated, resident] = peaks.map(AtomicUsize::into_inner);
    println!("{} {allocated} {resident}", peak_resident()?);
    Ok(())
}
