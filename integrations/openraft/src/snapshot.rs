//! Snapshots of the machine: they are taken at once, and written when somebody reads them.
//!
//! 1. [`Builder::build_snapshot`] keeps a snapshot of the store with its place in the log. It
//!    writes nothing, so a node may shorten its log often.
//! 2. When another node needs the snapshot, openraft gets [`SnapshotData`], and reads it. At the
//!    first read a thread writes the stream to a file without a name, from the snapshot of the
//!    store. In the meantime the machine continues.
//! 3. The receiver writes the arriving stream to an unnamed file of its own, and installs it
//!    (`StateMachine::install_snapshot`).

use std::fmt;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, BufReader, BufWriter, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use openraft::{
    LogId, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig, Snapshot, SnapshotMeta, StorageError,
};
use parking_lot::Mutex;
use runstone::{Keyspace, ReadOptions};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::error::Error;
use crate::stream;

/// The source of a stream: a keyspace as of one moment.
pub(crate) struct Source {
    pub(crate) keyspace: Keyspace,
    pub(crate) snapshot: runstone::Snapshot,
    /// Where its stream is written; `None` for memory.
    pub(crate) directory: Option<PathBuf>,
}

/// The last snapshot that was taken or installed.
pub(crate) type Current<C> = Mutex<Option<(Meta<C>, Arc<Source>)>>;

pub(crate) type Meta<C> = SnapshotMeta<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>;

/// Takes a snapshot of the machine as of the moment when the builder was made.
pub struct Builder<C: RaftTypeConfig> {
    pub(crate) meta: Meta<C>,
    pub(crate) source: Arc<Source>,
    pub(crate) current: Arc<Current<C>>,
}

/// Names the bytes of a snapshot. Machines that applied the same entries have the same contents, so
/// the place in the log is enough. The number in front is that of the stream's format.
pub(crate) fn id<C: RaftTypeConfig>(last: &Option<LogId<C::NodeId>>) -> String {
    match last {
        Some(last) => format!("1-{}-{}", last.leader_id, last.index),
        None => "1-nothing".to_string(),
    }
}

impl<C> RaftSnapshotBuilder<C> for Builder<C>
where
    C: RaftTypeConfig<SnapshotData = SnapshotData>,
{
    async fn build_snapshot(&mut self) -> Result<Snapshot<C>, StorageError<C::NodeId>> {
        let mut current = self.current.lock();
        // Another task may have installed a newer snapshot while this one waited.
        let is_newer =
            current.as_ref().is_none_or(|(other, _)| self.meta.last_log_id >= other.last_log_id);
        if is_newer {
            *current = Some((self.meta.clone(), Arc::clone(&self.source)));
        }
        let snapshot = Box::new(SnapshotData::of(Arc::clone(&self.source)));
        Ok(Snapshot { meta: self.meta.clone(), snapshot })
    }
}

/// The bytes of a snapshot: `SnapshotData` in the application's type configuration. Their number is
/// known only once all are written, so the first read or seek waits for this, without blocking a
/// thread of the runtime.
pub struct SnapshotData(Body);

enum Body {
    /// The stream is not written, because nobody has read it yet.
    Source(Arc<Source>),
    Writing(JoinHandle<Result<Written, Error>>),
    File(tokio::fs::File),
    Memory(Cursor<Vec<u8>>),
    /// The stream could not be written, and the reader got the error.
    Failed,
}

/// A stream that is complete.
enum Written {
    File(File),
    Memory(Cursor<Vec<u8>>),
}

trait Bytes: AsyncRead + AsyncWrite + AsyncSeek + Unpin {}
impl<T: AsyncRead + AsyncWrite + AsyncSeek + Unpin> Bytes for T {}

impl SnapshotData {
    pub(crate) fn of(source: Arc<Source>) -> SnapshotData {
        SnapshotData(Body::Source(source))
    }

    /// Makes a place for an arriving stream.
    pub(crate) fn blank(directory: Option<&Path>) -> io::Result<SnapshotData> {
        Ok(SnapshotData(match directory {
            Some(directory) => Body::File(unnamed(directory)?.into()),
            None => Body::Memory(Cursor::default()),
        }))
    }

    /// Returns the stream from its beginning, for a thread that may wait.
    pub(crate) async fn into_reader(mut self) -> io::Result<Box<dyn Read + Send>> {
        poll_fn(|context| self.poll_written(context)).await?;
        Ok(match self.0 {
            Body::File(mut file) => {
                file.flush().await?;
                let mut file = file.into_std().await;
                file.seek(SeekFrom::Start(0))?;
                Box::new(BufReader::with_capacity(256 << 10, file))
            }
            Body::Memory(bytes) => Box::new(Cursor::new(bytes.into_inner())),
            Body::Source(_) | Body::Writing(_) | Body::Failed => return Err(failed()),
        })
    }

    /// Begins to write the stream, if nobody has, and waits for its end.
    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.0 {
                Body::File(_) | Body::Memory(_) => return Poll::Ready(Ok(())),
                Body::Failed => return Poll::Ready(Err(failed())),
                Body::Source(source) => {
                    let source = Arc::clone(source);
                    self.0 = Body::Writing(spawn_blocking(move || source.write()));
                }
                Body::Writing(task) => {
                    let written = ready!(Pin::new(task).poll(context));
                    self.0 = Body::Failed;
                    self.0 = match written.map_err(Error::from)?? {
                        Written::File(file) => Body::File(file.into()),
                        Written::Memory(bytes) => Body::Memory(bytes),
                    };
                }
            }
        }
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Bytes>>> {
        ready!(self.poll_written(context))?;
        Poll::Ready(self.bytes())
    }

    fn bytes(&mut self) -> io::Result<Pin<&mut dyn Bytes>> {
        match &mut self.0 {
            Body::File(file) => Ok(Pin::new(file)),
            Body::Memory(bytes) => Ok(Pin::new(bytes)),
            Body::Source(_) | Body::Writing(_) | Body::Failed => Err(failed()),
        }
    }
}

fn failed() -> io::Error {
    io::Error::other("the snapshot was not written to its end")
}

/// Makes a file that nobody else can open, and that disappears with its last handle.
fn unnamed(directory: &Path) -> io::Result<File> {
    std::fs::create_dir_all(directory)?;
    tempfile::tempfile_in(directory)
}

impl Source {
    fn write(&self) -> Result<Written, Error> {
        let entries = || self.keyspace.scan(ReadOptions::default().at(&self.snapshot));
        let Some(directory) = &self.directory else {
            let mut bytes = Vec::new();
            stream::write(&mut bytes, entries()?)?;
            return Ok(Written::Memory(Cursor::new(bytes)));
        };
        let mut file = BufWriter::with_capacity(256 << 10, unnamed(directory)?);
        stream::write(&mut file, entries()?)?;
        let mut file = file.into_inner().map_err(|error| error.into_error())?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Written::File(file))
    }
}

impl fmt::Debug for SnapshotData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Body::Source(_) => "SnapshotData(not written)",
            Body::Writing(_) => "SnapshotData(being written)",
            Body::File(_) => "SnapshotData(file)",
            Body::Memory(_) => "SnapshotData(memory)",
            Body::Failed => "SnapshotData(failed)",
        })
    }
}

impl AsyncRead for SnapshotData {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_bytes(context))?.poll_read(context, to)
    }
}

impl AsyncWrite for SnapshotData {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_bytes(context))?.poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_bytes(context))?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_bytes(context))?.poll_shutdown(context)
    }
}

impl AsyncSeek for SnapshotData {
    /// tokio calls `poll_complete` first, which waits until the stream is written.
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        self.bytes()?.start_seek(to)
    }

    fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        ready!(self.poll_bytes(context))?.poll_complete(context)
    }
}

const _: fn() = || {
    fn is_sent<T: OptionalSend + Unpin>() {}
    is_sent::<SnapshotData>();
};
