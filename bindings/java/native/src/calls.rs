//! The entry and exit of a native method: handles arrive as `long`, and failures leave as
//! exceptions.

use jni::errors::{Error, LogErrorAndDefault};
use jni::objects::{JObject, JString, JThrowable, JValue};
use jni::strings::JNIString;
use jni::sys::jlong;
use jni::{Env, EnvUnowned, jni_sig, jni_str};
use runstone_boundary::{Code, Failure, Result, guard};

/// Runs the body of a native method. A failure or a panic becomes an exception of
/// `org.runstone.RunstoneException`, and Java does not see the returned value.
pub fn call<'l, T: Default + 'l>(
    mut env: EnvUnowned<'l>,
    work: impl FnOnce(&mut Env<'l>) -> Result<T>,
) -> T {
    let outcome = env.with_env_no_catch(|env| -> std::result::Result<T, Error> {
        match guard(|| work(env)) {
            Ok(value) => Ok(value),
            Err(failure) => {
                throw(env, &failure)?;
                Ok(T::default())
            }
        }
    });
    outcome.resolve::<LogErrorAndDefault>()
}

/// Makes the exception on the Java side, which chooses its class by the code, and throws it.
fn throw(env: &mut Env<'_>, failure: &Failure) -> std::result::Result<(), Error> {
    if env.exception_check() {
        return Ok(());
    }
    let message = env.new_string(&failure.message)?;
    let made = env.call_static_method(
        jni_str!("org/runstone/RunstoneException"),
        jni_str!("of"),
        jni_sig!("(ILjava/lang/String;)Lorg/runstone/RunstoneException;"),
        &[JValue::Int(failure.code as i32), JValue::Object(&message)],
    )?;
    let made = made.l()?;
    let thrown = env.cast_local::<JThrowable<'_>>(made)?;
    // The result only reports that an exception is pending.
    let _ = env.throw(thrown);
    Ok(())
}

/// Errors that the JVM reports: an index out of range, or no memory.
pub fn refused(what: &str) -> impl FnOnce(Error) -> Failure + '_ {
    move |error| Failure::new(Code::InvalidArgument, format!("{what}: {error}"))
}

/// A Java string.
pub fn text(env: &Env<'_>, string: &JString<'_>, what: &str) -> Result<String> {
    if string.is_null() {
        return Err(Failure::invalid(format!("the {what} is null")));
    }
    let chars = string.mutf8_chars(env).map_err(refused(what))?;
    let text = chars.to_string();
    // An unpaired surrogate would be replaced, so two names could become one.
    if *JNIString::from(&text) != *chars {
        return Err(Failure::invalid(format!("the {what} {text:?} is no Unicode text")));
    }
    Ok(text)
}

/// A Java string that may be null.
pub fn optional_text(env: &Env<'_>, string: &JString<'_>, what: &str) -> Result<Option<String>> {
    if string.is_null() { Ok(None) } else { text(env, string, what).map(Some) }
}

/// A string for Java.
pub fn string<'l>(env: &mut Env<'l>, text: &str) -> Result<JObject<'l>> {
    env.new_string(text).map(JObject::from).map_err(refused("a text for Java"))
}

/// A handle as Java passes it.
pub fn handle(handle: jlong) -> u64 {
    handle as u64
}
