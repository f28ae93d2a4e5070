//! Backups, archives, and repairs.

use std::time::Duration;

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JString};
use jni::sys::{jboolean, jint, jlong};
use parking_lot::Mutex;
use runstone::{
    Archiver, BackupInfo, Backups, Damage, DoubtReason, Moment, Position, RepairBasis,
    RepairOptions, Store,
};
use runstone_boundary::backups::{damage_message, newest};
use runstone_boundary::{Code, Failure, Handles, Result, options};

use crate::answers::Answer;
use crate::calls::{call, handle, text};

/// Open directories of backups.
static BACKUPS: Handles<Backups> = Handles::new(7, "directory of backups");
/// Open archivers.
static ARCHIVERS: Handles<Mutex<Archiver>> = Handles::new(8, "archiver");

/// The kinds of moments. Java uses the same numbers.
const AT_END: jint = 0;
const AT_TIME: jint = 1;
const AT_NUMBER: jint = 2;
const AT_POSITION: jint = 3;

/// Java's numbers are signed.
fn positive(number: jlong, what: &str) -> Result<u64> {
    u64::try_from(number).map_err(|_| Failure::invalid(format!("{what} is {number}")))
}

/// The number of a backup; 0 is the newest.
fn number_of(backups: &Backups, number: jlong) -> Result<u64> {
    match number {
        0 => Ok(newest(backups)?),
        _ => positive(number, "the number of the backup"),
    }
}

fn told(damage: &[Damage]) -> Result<()> {
    match damage.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(Code::Corruption, damage_message(damage.len(), first))),
    }
}

fn backup(answer: Answer, info: BackupInfo) -> Answer {
    answer.numbers([
        info.number,
        info.time_ms,
        info.last_seq,
        info.tables,
        info.value_segments,
        info.bytes,
        info.added_bytes,
    ])
}

fn position(answer: Answer, position: Position) -> Answer {
    answer.numbers([position.seq(), position.history()])
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_openBackups<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    path: JString<'l>,
    may_create: jboolean,
) -> jlong {
    call(env, |env| {
        let path = text(env, &path, "path")?;
        let opened = if may_create { Backups::open(path) } else { Backups::open_existing(path) };
        Ok(BACKUPS.keep(opened?)?.get() as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeBackups<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
) {
    call(env, |_| BACKUPS.close(handle(backups)));
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_createBackup<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
    store: JString<'l>,
) -> JByteArray<'l> {
    call(env, |env| {
        let store = text(env, &store, "path of the store")?;
        let made = BACKUPS.get(handle(backups))?.create(store)?;
        backup(Answer::default(), made).give(env)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_listBackups<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let all = BACKUPS.get(handle(backups))?.list()?;
        Answer::default().list(all, backup).give(env)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_damagedBackups<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let all = BACKUPS.get(handle(backups))?.damaged()?;
        let one = |answer: Answer, (number, what): (u64, String)| answer.number(number).bytes(what);
        Answer::default().list(all, one).give(env)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_archives<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let all = BACKUPS.get(handle(backups))?.archives()?;
        let one = |answer: Answer, info: runstone::ArchiveInfo| {
            position(answer.number(info.from_seq), info.through)
                .optional(info.from_ms, Answer::number)
                .optional(info.through_ms, Answer::number)
                .number(info.bytes)
        };
        Answer::default().list(all, one).give(env)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_verifyBackup<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
    number: jlong,
) {
    call(env, |_| {
        let backups = BACKUPS.get(handle(backups))?;
        told(&backups.verify(number_of(&backups, number)?)?)
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_verifyArchives<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
) {
    call(env, |_| told(&BACKUPS.get(handle(backups))?.verify_archives()?));
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_restore<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
    number: jlong,
    path: JString<'l>,
) {
    call(env, |env| {
        let path = text(env, &path, "path")?;
        let backups = BACKUPS.get(handle(backups))?;
        Ok(backups.restore(number_of(&backups, number)?, path)?)
    });
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_restoreTo<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
    kind: jint,
    value: jlong,
    history: jlong,
    path: JString<'l>,
) -> JByteArray<'l> {
    call(env, |env| {
        let path = text(env, &path, "path")?;
        let moment = match kind {
            AT_END => Moment::End,
            AT_TIME => Moment::Time(positive(value, "the time since 1970")?),
            AT_NUMBER => Moment::Number(positive(value, "the number")?),
            AT_POSITION => {
                let number = positive(value, "the number")?;
                Moment::Position(Position::new(history as u64, number))
            }
            _ => return Err(Failure::invalid(format!("there is no moment of kind {kind}"))),
        };
        let made = BACKUPS.get(handle(backups))?.restore_to(moment, path)?;
        Answer::default().numbers([made.backup, made.changes, made.last_seq]).give(env)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_prune<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
    keep: jint,
) -> jlong {
    call(env, |_| {
        let keep = positive(jlong::from(keep), "the number of backups to keep")?;
        Ok(BACKUPS.get(handle(backups))?.prune(keep as usize)? as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_openArchiver<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    backups: jlong,
    store: JString<'l>,
) -> jlong {
    call(env, |env| {
        let store = text(env, &store, "path of the store")?;
        let begun = BACKUPS.get(handle(backups))?.archive(store)?;
        Ok(ARCHIVERS.keep(Mutex::new(begun))?.get() as jlong)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_closeArchiver<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    archiver: jlong,
) {
    call(env, |_| ARCHIVERS.close(handle(archiver)));
}

/// Java waits in short calls, so that other threads can use the archiver between them.
#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_advance<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    archiver: jlong,
    wait_ms: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let most = Duration::from_millis(positive(wait_ms, "the wait")?);
        let archiver = ARCHIVERS.get(handle(archiver))?;
        let round = archiver.lock().advance(most)?;
        Answer::default()
            .numbers([round.changes, round.bytes, u64::from(round.is_drained)])
            .optional(round.based, |answer, based| {
                backup(answer, based.backup).optional(based.lacks, |answer, (after, through)| {
                    answer.numbers([after, through])
                })
            })
            .give(env)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_archived<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    archiver: jlong,
) -> JByteArray<'l> {
    call(env, |env| {
        let found = ARCHIVERS.get(handle(archiver))?.lock().position();
        position(Answer::default(), found).give(env)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_org_runstone_Native_repair<'l>(
    env: EnvUnowned<'l>,
    _: JClass<'l>,
    from: JString<'l>,
    to: JString<'l>,
    options: JString<'l>,
    lost_log: jboolean,
) -> JByteArray<'l> {
    call(env, |env| {
        let (from, to) = (text(env, &from, "damaged store")?, text(env, &to, "new store")?);
        let store = options::of_store(&text(env, &options, "options")?)?;
        let options = RepairOptions::default().store(store).lost_log(lost_log);
        let report = Store::repair(from, to, options)?;
        let basis = match report.basis {
            RepairBasis::Manifest => 0,
            RepairBasis::PartOfManifest => 1,
            _ => 2,
        };
        let reason = |reason| match reason {
            DoubtReason::MayBeOld => 0,
            DoubtReason::MayBeBack => 1,
            DoubtReason::ValueLost => 2,
            DoubtReason::OperandsMayRepeat => 3,
            _ => 4,
        };
        Answer::default()
            .numbers([u64::from(report.is_healthy), basis])
            .list(report.keyspaces, Answer::bytes)
            .numbers([report.tables, report.carried_tables, report.log_records])
            .numbers([report.entries, report.bytes, report.last_seq])
            .list(report.lost, |answer, lost| answer.bytes(lost.file).bytes(lost.what))
            .list(report.doubts, |answer, doubt| {
                answer
                    .optional(doubt.keyspace, Answer::bytes)
                    .bytes(doubt.from)
                    .optional(doubt.to, Answer::bytes)
                    .optional(doubt.numbers, |answer, (first, last)| answer.numbers([first, last]))
                    .number(reason(doubt.reason))
                    .bytes(doubt.what)
            })
            .list(report.notes, Answer::bytes)
            .give(env)
    })
}
