//! Events of a store for a listener in Java. The threads that call the listener belong to the
//! store, and Java did not start them. Each is attached to the JVM only during its call, so that it
//! does not delay an exit.

use std::fmt;

use jni::objects::{JObject, JObjectArray, JString, JValue};
use jni::refs::Global;
use jni::{Env, JavaVM, jni_sig, jni_str};
use runstone::{Event, EventListener};
use runstone_boundary::Result;
use runstone_boundary::events::{Field, Told};

use crate::calls::refused;

/// An object of `org.runstone.Events`, whose `tell` throws nothing.
pub struct Listener(Global<JObject<'static>>);

impl Listener {
    pub fn new(env: &Env<'_>, events: &JObject<'_>) -> Result<Listener> {
        env.new_global_ref(events).map(Listener).map_err(refused("the listener"))
    }

    fn tell(&self, told: &Told) -> jni::errors::Result<()> {
        JavaVM::singleton()?.attach_current_thread_for_scope(|env| {
            let texts = texts(told);
            let fields = JObjectArray::<JString<'_>>::new(env, texts.len(), JString::null())?;
            for (at, text) in texts.iter().enumerate() {
                let text = env.new_string(text)?;
                fields.set_element(env, at, &text)?;
                env.delete_local_ref(text);
            }
            let (kind, message) = (env.new_string(told.kind)?, env.new_string(&told.message)?);
            env.call_method(
                &self.0,
                jni_str!("tell"),
                jni_sig!("(Ljava/lang/String;ZLjava/lang/String;[Ljava/lang/String;)V"),
                &[
                    JValue::Object(&kind),
                    JValue::Bool(told.is_warning),
                    JValue::Object(&message),
                    JValue::Object(&fields),
                ],
            )?;
            Ok(())
        })
    }
}

/// Names and values in one row. Each name is followed by a letter and a value; for a list, by its
/// length and its items.
fn texts(told: &Told) -> Vec<String> {
    let mut texts = Vec::new();
    for (name, field) in &told.fields {
        texts.push((*name).to_string());
        match field {
            Field::Number(number) => texts.extend(["n".to_string(), number.to_string()]),
            Field::Text(text) => texts.extend(["t".to_string(), text.clone()]),
            Field::Texts(items) => {
                texts.extend(["l".to_string(), items.len().to_string()]);
                texts.extend(items.iter().cloned());
            }
        }
    }
    texts
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a listener in Java")
    }
}

impl EventListener for Listener {
    fn on_event(&self, event: &Event) {
        if let Some(told) = Told::of(event) {
            // A JVM that is ending, or has no memory, does not receive the event.
            let _ = self.tell(&told);
        }
    }
}
